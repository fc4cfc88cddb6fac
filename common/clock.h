#ifndef FOVEA_COMMON_CLOCK_H
#define FOVEA_COMMON_CLOCK_H

/* Seconds of a monotonic clock, for durations. */
#include <time.h>

static inline double fv_clock_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Seconds since 1970, for dates that others have written (a token's expiry). This clock can be set,
 * so never use it for durations. */
static inline double fv_clock_unix_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

#endif
