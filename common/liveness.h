#ifndef FOVEA_COMMON_LIVENESS_H
#define FOVEA_COMMON_LIVENESS_H

/* LIVENESS: does a worker make progress? Yes, if requests complete or, without requests for a
 * while, a small request of its own (a probe). A running process alone proves little.
 *
 *   [computing thread]  a request or a probe succeeded      --> n_good ---.
 *                       one failed, not by the caller's fault > n_bad ---+--> fv_liveness_update
 *                       a layer was computed                --> n_moved --'    [loop thread]
 *
 * Healthy means that a request or probe succeeded within the last unhealthy_s. Time in which layers
 * are computed does not count, so a worker in the middle of a long batch is healthy, however slow it
 * is, as long as each layer takes less than unhealthy_s. If that batch fails, the time does count.
 * The computing thread only increments counters, so a hung thread cannot look healthy. Pure functions
 * of time: seconds of fv_clock_s. */
#include <stdbool.h>
#include <stdint.h>

/* Counters of the computing thread since its start. */
typedef struct fv_vital_signs {
    uint64_t n_good, n_bad, n_moved;
    const char *lost; /* why no request can ever succeed again in this process; NULL: it can */
} fv_vital_signs;

typedef struct fv_liveness {
    double unhealthy_s;
    /* private */
    fv_vital_signs seen;
    double good_s;   /* time of the last success */
    double judged_s; /* time of the last success or failure: the work that runs began later */
    double held_s;   /* from judged_s to the last layer of that work: does not count */
    bool ever;       /* a request or probe has succeeded */
} fv_liveness;

/* Starts as not healthy: nothing has succeeded yet. */
void fv_liveness_init(fv_liveness *v, double unhealthy_s);

/* Records the signs and returns whether the worker is healthy. Call it often. */
bool fv_liveness_update(fv_liveness *v, const fv_vital_signs *signs, double now_s);

/* ---- schedule of probes, for the computing thread --------------------------------------- */

typedef struct fv_probe_clock {
    double every_s; /* 0: never */
    double last_s;  /* time of the last success or tried probe; -HUGE_VAL: never */
} fv_probe_clock;

void fv_probe_clock_init(fv_probe_clock *c, double every_s);
void fv_probe_clock_reset(fv_probe_clock *c, double now_s);
double fv_probe_due_in(const fv_probe_clock *c, double now_s); /* 0: now; HUGE_VAL: never */

#endif
