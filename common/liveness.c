/* Judges a worker from counters and a clock; see liveness.h. Any thread, one at a time. */
#include "common/liveness.h"

#include <math.h>

void fv_liveness_init(fv_liveness *v, double unhealthy_s) {
    *v = (fv_liveness){.unhealthy_s = unhealthy_s};
}

bool fv_liveness_update(fv_liveness *v, const fv_vital_signs *signs, double now_s) {
    bool good = signs->n_good != v->seen.n_good, bad = signs->n_bad != v->seen.n_bad;
    if (good) {
        v->good_s = now_s;
        v->ever = true;
    }
    if (good || bad) { /* the work that was making progress has ended */
        v->held_s = 0;
        v->judged_s = now_s;
    } else if (v->ever && signs->n_moved != v->seen.n_moved) {
        v->held_s = now_s - v->judged_s;
    }
    v->seen = *signs;
    return v->ever && now_s - v->good_s - v->held_s <= v->unhealthy_s;
}

void fv_probe_clock_init(fv_probe_clock *c, double every_s) {
    *c = (fv_probe_clock){.every_s = every_s, .last_s = -HUGE_VAL};
}

void fv_probe_clock_reset(fv_probe_clock *c, double now_s) { c->last_s = now_s; }

double fv_probe_due_in(const fv_probe_clock *c, double now_s) {
    return c->every_s > 0 ? fmax(c->last_s + c->every_s - now_s, 0) : HUGE_VAL;
}
