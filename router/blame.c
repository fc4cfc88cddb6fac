/* Finds requests that kill workers. Such a request would be replayed on another worker, kill that, and
 * so on through the fleet. So a request is ended when two workers that worked on it were lost, one
 * in each of two attempts, and its client is told not to send it again.
 *
 * Evidence. A worker is lost when its membership breaks or falls silent, or when it hangs
 * (router/watch.c). A worker that leaves by itself, or a failed call to a worker that lives on, is no
 * evidence. A prefill worker counts as working on a request until the first token, a decode worker
 * from the call for its tokens on; but not while the worker's last report names others and not this
 * request, which is waiting then.
 *
 * A request that merely shared the worker must not be ended with it. The first loss makes a request a
 * suspect. From then on suspects are kept apart from each other as far as there are workers. When
 * the second worker is lost, a suspect that was the only one there is ended. Several suspects that were
 * there together are not, because it is unknown which of them it was: each continues as the
 * only suspect of a worker, even if it has to wait for that.
 *
 * Loop thread. */
#include "router/blame.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

/* A killed process breaks its calls and its membership at once, and either may be seen first: an attempt that
 * failed this recently counts, too. */
static const double same_loss_s = 2;

void fv_blame_remember(fv_request *r, const fv_failure *f) {
    snprintf(r->broken_p, sizeof r->broken_p, "%s", f->worked_p ? f->p : "");
    snprintf(r->broken_d, sizeof r->broken_d, "%s", f->worked_d ? f->d : "");
    r->broken_s = fv_clock_s();
}

/* Whether w works on the request, or did when its last attempt failed a moment ago. */
static bool is_hit(const fv_request *r, const fv_registered_worker *w, double now_s) {
    if (!fv_request_is_active(r)) return false;
    if (r->attempt && fv_attempt_works_at(r->attempt, w)) return true;
    return now_s - r->broken_s < same_loss_s &&
           (strcmp(r->broken_p, w->intro->name) == 0 || strcmp(r->broken_d, w->intro->name) == 0);
}

fv_status fv_blame_sentence(const fv_request *r) {
    return FV_FAIL(
        FV_EFATAL,
        "two workers were lost while they worked on this request, %s and %s: do not send "
        "it again",
        r->lost_at[0], r->lost_at[1]);
}

static void count_loss(fv_request *r, const fv_registered_worker *w) {
    snprintf(r->lost_at[r->n_lost > 0], sizeof r->lost_at[0], "%s", w->intro->name);
    r->n_lost++;
    r->broken_p[0] = r->broken_d[0] = '\0';
}

void fv_blame_lost(fv_relay *relay, const fv_registered_worker *w) {
    double now_s = fv_clock_s();
    int32_t n_suspect = 0;
    for (const fv_request *r = relay->first; r; r = r->next)
        n_suspect += is_hit(r, w, now_s) && r->n_lost > 0;
    for (fv_request *r = relay->first; r; r = r->next) {
        if (!is_hit(r, w, now_s)) continue;
        count_loss(r, w);
        FV_LOG(WARN, ROUTER, "req=%s event=suspect lost=%s n_lost=%d n_suspect=%d", r->id,
               w->intro->name, (int)r->n_lost, (int)n_suspect);
        if (r->n_lost > 1 && n_suspect == 1) fv_request_finish(r, fv_blame_sentence(r));
    }
}
