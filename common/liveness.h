#ifndef FOVEA_COMMON_LIVENESS_H
#define FOVEA_COMMON_LIVENESS_H

/* VITALS: is a worker alive? It is when work goes through it: requests, and, where none came for a
 * while, a tiny one of its own (a probe). That its process is there says little.
 *
 *   [computing thread]  a request ended well, or a probe  --> n_good ---.
 *                       one failed for no fault of the asker > n_bad ---+--> fv_liveness_look
 *                       a layer was computed              --> n_moved --'    [loop thread]
 *
 * Healthy: something went through within the last unhealthy_s. A worker that is in the middle of a
 * long batch is not dead, so time in which layers are computed does not count; but if that work
 * fails, it does after all. The computing thread only counts, so that a thread which hangs cannot
 * keep up appearances. Pure functions of time: seconds of fv_clock_s. */
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the computing thread has counted since its start. */
typedef struct fv_vital_signs {
    uint64_t n_good, n_bad, n_moved;
    const char *lost; /* why nothing can ever go through again in this process; NULL: it can */
} fv_vital_signs;

typedef struct fv_liveness {
    double unhealthy_s;
    /* private */
    fv_vital_signs seen;
    double good_s, seen_s; /* when something went through; when last looked */
    double held_s;         /* time since good_s in which work got on */
    bool ever;             /* something went through */
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

#ifdef __cplusplus
}
#endif
#endif
