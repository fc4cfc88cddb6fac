/* Finds requests that make no progress. Workers report the requests that they work on, each with a count
 * that grows with every layer, image and step. Slow is not hung: the count of a prefill of minutes grows
 * layer by layer. A request whose count is unchanged for stall_ms is taken away and replayed, as after the
 * loss of its worker.
 *
 * If none of the requests that a worker reports makes progress, for whichever router, the worker
 * hangs: requests that wait there are taken away, too, and it gets no new ones until there is
 * progress again. The same holds if it reports itself unhealthy and works on nothing while it has
 * requests of ours: it hangs between requests, for example in its own probe.
 *
 * A request that the worker does not report waits there in a queue, for memory, or for another
 * worker: that wait is not limited here. Loop thread. */
#include "router/watch.h"

#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "router/blame.h"

static void keep_progress(fv_reservation *x, const char *id,
                          const Fovea__Fleet__V1__WorkerReport *report, double now_s) {
    const Fovea__Fleet__V1__Work *found = NULL;
    for (size_t i = 0; i < report->n_work && !found; i++)
        if (strcmp(report->work[i]->request_id, id) == 0) found = report->work[i];
    x->works_on_others = !found && report->n_work > 0;
    if (found && (!x->is_working || x->work != found->count)) {
        x->work = found->count;
        x->moved_s = now_s;
    }
    x->is_working = found != NULL;
}

void fv_watch_report(fv_relay *relay, fv_registered_worker *w,
                     const Fovea__Fleet__V1__WorkerReport *report) {
    double now_s = fv_clock_s();
    uint64_t sum = 0;
    for (size_t i = 0; i < report->n_work; i++) sum += report->work[i]->count;
    bool moved = sum != w->work || (int32_t)report->n_work != w->n_work ||
                 report->unhealthy != w->reports_unhealthy;
    if (moved) w->moved_s = now_s;
    if (w->hung && moved) {
        w->hung = false;
        FV_LOG(WARN, ROUTER, "worker=%s event=progress-again", w->intro->name);
    }
    w->work = sum;
    w->n_work = (int32_t)report->n_work;
    for (fv_request *r = relay->first; r; r = r->next) {
        if (!r->attempt) continue;
        if (r->attempt->p.worker == w) keep_progress(&r->attempt->p, r->fleet_id, report, now_s);
        if (r->attempt->d.worker == w) keep_progress(&r->attempt->d, r->fleet_id, report, now_s);
    }
}

static bool hangs(const fv_registered_worker *w, double stall_s, double now_s) {
    if (w->state == FV_WORKER_LOST || w->hung) return false;
    bool at_work = w->n_work > 0 || (w->reports_unhealthy && w->n_taken > 0);
    return at_work && now_s - w->moved_s > stall_s;
}

/* Declares w hung and takes all its requests away. */
static void take_all_requests(fv_relay *relay, fv_registered_worker *w) {
    FV_LOG(WARN, ROUTER, "worker=%s event=hung working_on=%d", w->intro->name, (int)w->n_work);
    fv_registered_worker_mark_hung(w);
    fv_blame_lost(relay, w);
    for (fv_request *r = relay->first; r; r = r->next)
        if (r->attempt) fv_attempt_hang(r->attempt, w);
}

static fv_registered_worker *stalled_worker(const fv_attempt *a, double stall_s, double now_s) {
    if (a->p.worker && a->p.is_working && now_s - a->p.moved_s > stall_s) return a->p.worker;
    if (a->d.worker && a->d.is_working && now_s - a->d.moved_s > stall_s) return a->d.worker;
    return NULL;
}

void fv_watch_tick(fv_relay *relay, double now_s) {
    double stall_s = 1e-3 * (double)relay->opt.stall_ms;
    const fv_registry *m = relay->opt.members;
    for (fv_registered_worker *w = fv_registry_first(m); w; w = fv_registry_next(w))
        if (hangs(w, stall_s, now_s)) take_all_requests(relay, w);
    for (fv_request *r = relay->first; r; r = r->next) {
        fv_registered_worker *w = r->attempt ? stalled_worker(r->attempt, stall_s, now_s) : NULL;
        if (w) fv_attempt_hang(r->attempt, w);
    }
}
