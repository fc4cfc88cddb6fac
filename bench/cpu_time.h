#ifndef FOVEA_BENCH_CPU_TIME_H
#define FOVEA_BENCH_CPU_TIME_H

/* Seconds for which all threads of a process have computed: unlike the time on the clock, hardly
 * longer when the machine does other things too. Below 0: there is no such process. */
#include <sys/types.h>
#include <time.h>

static inline double cpu_time_s(pid_t pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return -1;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
