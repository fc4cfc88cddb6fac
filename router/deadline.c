/* Compares estimated times with deadlines. Pure functions. */
#include "router/deadline.h"

#include <math.h>

/* Margins: a request is admitted if it would be in time even if everything took this much longer than
 * estimated, because the estimate is an average: without a margin, half of the requests would be late.
 * The margin of a queued request is smaller, because its estimate does not
 * include the wait in the queue. */
static const double SPARE_ADMIT = 1.25, SPARE_START = 1.1;

static const double RETRY_LEAST_S = 0.1;

/* A request without images does not wait for those of others. */
static double images_s(const fv_estimate *e, const fv_registered_worker *p, const fv_work *w) {
    return w->pixels ? fv_estimate_images_s(e, &p->pace, p->pixels_taken + w->pixels) : 0;
}

/* Assumes that requests of other routers are as large as this one. */
double fv_deadline_prefill_s(const fv_estimate *e, const fv_registered_worker *p,
                             const fv_work *w) {
    uint64_t foreign = (uint64_t)p->n_foreign * w->prompt;
    return images_s(e, p, w) +
           fv_estimate_prefill_s(e, &p->pace, p->prompt_taken + foreign + w->prompt);
}

double fv_deadline_decode_s(const fv_estimate *e, const fv_registered_worker *d, const fv_work *w) {
    return fv_estimate_decode_s(e, &d->pace, d->n_taken + d->n_foreign + 1, w->answer);
}

/* Seconds on the fastest worker of a role: with its present load, and if it were idle; 0: no worker. */
typedef struct two_times {
    double now_s, alone_s;
} two_times;

static two_times fastest(const fv_estimate *e, const fv_registered_worker *first, const fv_work *w,
                         Fovea__Inference__V1__Role role) {
    two_times best = {HUGE_VAL, HUGE_VAL};
    bool prefill = role == FV_WORKER_PREFILL;
    for (const fv_registered_worker *m = first; m; m = m->next) {
        if (m->role != role || m->state != FV_WORKER_READY) continue;
        double now_s = prefill ? fv_deadline_prefill_s(e, m, w) : fv_deadline_decode_s(e, m, w);
        double alone_s = prefill ? fv_estimate_images_s(e, &m->pace, w->pixels) +
                                       fv_estimate_prefill_s(e, &m->pace, w->prompt)
                                 : fv_estimate_decode_s(e, &m->pace, 1, w->answer);
        best.now_s = fmin(best.now_s, now_s);
        best.alone_s = fmin(best.alone_s, alone_s);
    }
    return isinf(best.now_s) ? (two_times){0, 0} : best;
}

fv_outlook fv_deadline_look(const fv_estimate *e, const fv_registered_worker *first,
                            const fv_work *ahead, const fv_work *w) {
    two_times p = fastest(e, first, w, FV_WORKER_PREFILL);
    two_times d = fastest(e, first, w, FV_WORKER_DECODE);
    return (fv_outlook){.queue_s = fv_estimate_queue_s(e, ahead),
                        .fleet_s = p.now_s + d.now_s,
                        .alone_s = p.alone_s + d.alone_s};
}

fv_status fv_deadline_admit(const fv_outlook *o, double left_s, double *retry_s) {
    double takes_s = o->queue_s + o->fleet_s;
    if (takes_s * SPARE_ADMIT <= left_s) return FV_OK;
    if (o->alone_s > left_s)
        return FV_FAIL(FV_ENOMEM,
                       "the answer takes about %.1f s even on an idle fleet, but the deadline "
                       "allows %.1f s: allow more time, or ask for fewer tokens",
                       o->alone_s, left_s);
    *retry_s = fmax(takes_s * SPARE_ADMIT - left_s, RETRY_LEAST_S);
    return FV_FAIL(FV_EBUSY,
                   "the answer would take about %.1f s now, but the deadline allows %.1f s: try "
                   "again in %.1f s, or allow more time",
                   takes_s, left_s, *retry_s);
}

fv_status fv_deadline_start(double seconds, double left_s, double waited_s) {
    if (seconds * SPARE_START <= left_s) return FV_OK;
    return FV_FAIL(FV_EDEADLINE,
                   "after %.1f s in the queue the answer would take about %.1f s more, but the "
                   "deadline allows %.1f s: try again later",
                   waited_s, seconds, left_s);
}
