/* Requests whose attempt has failed are replayed or ended, as router/failure.h says for each failure.
 *
 * Waiting is limited for a tenant that has all the KV that it may have: another decode worker is tried, and
 * then the client is told. A kept conversation is not replayed: only the client has all of it, and is told.
 *
 * Loop thread. */
#include "router/replay.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "router/balancer.h"
#include "router/blame.h"
#include "router/record.h"

enum {
    EXCLUDE_MS = 250, /* how long a failed worker is not tried again, at the first replay */
    TENANT_FULL_RETRY_MS = 1000,
};

/* Keeps why the attempt failed, and which workers the next one should avoid. */
static void remember(fv_request *r, const fv_failure *f) {
    if (f->status == FV_EIO) fv_blame_remember(r, f);
    snprintf(r->last_p, sizeof r->last_p, "%s", f->p);
    snprintf(r->last_d, sizeof r->last_d, "%s", f->d);
    r->exclude_p = f->avoid_p;
    r->exclude_d = f->avoid_d;
    snprintf(r->why, sizeof r->why, "%s", fv_last_error());
    r->n_tenant_full += f->refusal == FV_REFUSED_TENANT_FULL;
    r->n_preempted += f->refusal == FV_REFUSED_PREEMPTED;
}

/* Raises the need of a request that is too large for the decode worker that refused it. Returns whether a larger
 * worker may have room. */
static bool may_fit_larger(fv_request *r, uint64_t capacity) {
    fv_request_bounds *need = &r->need;
    if (capacity >= need->bytes_least) need->bytes_least = capacity + 1;
    if (need->bytes_least > need->bytes) need->bytes = need->bytes_least;
    return fv_balance_largest_capacity(r->fleet, FV_WORKER_DECODE) >= need->bytes_least;
}

/* Requeues a request that a worker had no memory for: another worker may have some. */
static void wait_for_room(fv_request *r) {
    fv_metric_add(FV_METRIC_REQUEUES, 0, 1);
    FV_LOG(DEBUG, ROUTER,
           "req=%s tenant?=%s trace?=%s event=no-room prefill=%s decode=%s why=\"%s\"", r->id,
           r->tenant->name, r->trace_id, r->last_p, r->last_d, r->why);
    fv_request_requeue(r);
}

/* Ends a request if two decode workers (or the one that keeps its conversation) have refused its tenant more KV:
 * waiting would only delay other tenants, for whom there is room. */
static bool end_if_tenant_full(fv_request *r) {
    if (r->n_tenant_full < (r->msg->conversation.len ? 1 : 2)) return false;
    fv_rpc_call_retry_after(r->client, TENANT_FULL_RETRY_MS);
    fv_request_finish(r,
                      fv_record_refusal(FV_REASON_TENANT_LIMIT, FV_FAIL(FV_EBUSY, "%s", r->why)));
    return true;
}

static void replay(fv_request *r) {
    if (r->msg->conversation.len) {
        fv_request_finish(r, FV_FAIL(FV_ENOTFOUND,
                                     "the conversation is gone (%s): send the whole conversation "
                                     "again",
                                     r->why));
        return;
    }
    if (r->n_replay >= (uint32_t)r->relay->opt.replays && r->n_lost > 1) {
        fv_request_finish(r, fv_blame_sentence(r));
        return;
    }
    if (r->n_replay >= (uint32_t)r->relay->opt.replays) {
        fv_request_finish(r, FV_FAIL(FV_EIO,
                                     "given up after %" PRIu32 " replays, the last time with "
                                     "prefill worker %s and decode worker %s: %s; it is safe to "
                                     "send the request again",
                                     r->n_replay, r->last_p, *r->last_d ? r->last_d : "(none)",
                                     r->why));
        return;
    }
    r->exclude_until_s = fv_clock_s() + 1e-3 * (EXCLUDE_MS << (r->n_replay < 4 ? r->n_replay : 4));
    r->n_replay++;
    fv_metric_add(FV_METRIC_REPLAYS, 0, 1);
    FV_LOG(WARN, ROUTER,
           "req=%s tenant?=%s trace?=%s event=replay n=%" PRIu32 " tokens=%" PRIu32
           " prefill=%s decode=%s why=\"%s\"",
           r->id, r->tenant->name, r->trace_id, r->n_replay, r->n_token, r->last_p, r->last_d,
           r->why);
    fv_request_requeue(r);
}

void fv_request_failed(fv_request *r, const fv_failure *f) {
    double now_s = fv_clock_s();
    double slack_ms = f->status == FV_EDEADLINE ? FV_DEADLINE_SLACK_MS : 0;
    fv_status st = f->status;
    remember(r, f);
    if (f->refusal == FV_REFUSED_TOO_LARGE && may_fit_larger(r, f->refuser_capacity)) st = FV_EBUSY;
    switch (fv_failure_remedy(st, f->origin)) {
    case FV_TELL: fv_request_finish(r, st); break;
    case FV_WAIT:
        if (!end_if_tenant_full(r)) wait_for_room(r);
        break;
    case FV_REPLAY:
    case FV_COUNTED:
        if (fv_request_left_ms(r, now_s) <= slack_ms)
            fv_request_finish(r, fv_request_timed_out(r, now_s));
        else
            replay(r);
        break;
    }
}
