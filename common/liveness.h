#ifndef FOVEA_COMMON_LIVENESS_H
#define FOVEA_COMMON_LIVENESS_H

/* LIVENESS: does a worker make progress? It does when requests complete, or, if there were none for
 * a while, a small request of its own (a probe). A running process alone proves little.
 *
 *   [computing thread]  a request or a probe succeeded      --> n_good ---.
 *                       one failed, not by the caller's fault > n_bad ---+--> fv_liveness_look
 *                       a layer was computed                --> n_moved --'    [loop thread]
 *
 * Healthy: something succeeded within the last unhealthy_s. Time in which layers are computed does
 * not count, so a worker in the middle of a long batch is healthy, however slow, as long as a layer
 * takes less than unhealthy_s; if that batch fails, it does count. The computing thread only increments counters, so a hung thread cannot look
 * healthy. Pure functions of time: seconds of fv_clock_s. */
#include <stdbool.h>
#include <stdint.h>

/* What the computing thread has counted since its start. */
typedef struct fv_vital_signs {
    uint64_t n_good, n_bad, n_moved;
    const char *lost; /* why nothing can ever go through again in this process; NULL: it can */
} fv_vital_signs;

typedef struct fv_liveness {
    double unhealthy_s;
    /* private */
    fv_vital_signs seen;
    double good_s;   /* when something went through */
    double judged_s; /* when something went through or failed: the work that runs began later */
    double held_s;   /* time since judged_s until a layer of that work was last over: forgiven */
    bool ever;       /* something went through */
} fv_liveness;

/* Nothing has gone through yet: not healthy. */
void fv_liveness_init(fv_liveness *v, double unhealthy_s);

/* Takes note of the signs, and says whether the worker is healthy. To be called often. */
bool fv_liveness_look(fv_liveness *v, const fv_vital_signs *signs, double now_s);

/* ---- when a probe is due: the computing thread ------------------------------------------ */

typedef struct fv_probe_clock {
    double every_s; /* 0: never */
    double last_s;  /* when a request went through, or a probe was tried; -HUGE_VAL: never */
} fv_probe_clock;

void fv_probe_clock_init(fv_probe_clock *c, double every_s);
void fv_probe_clock_reset(fv_probe_clock *c, double now_s);
double fv_probe_due_in(const fv_probe_clock *c, double now_s); /* 0: now; HUGE_VAL: never */

#endif
