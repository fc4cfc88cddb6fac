/* What happens to a request whose attempt has failed. Most failures of workers are not the request's
 * fault: another pair continues after the tokens that the client has received.
 *
 *   TELL      the client is told: the request would fail the same way elsewhere
 *   WAIT      back into the queue, which is no failure; if the tenant has all the KV that it may have,
 *             another decode worker is tried, and then the client is told
 *   REPLAY    back into the queue, up to a limit; the failed workers are avoided. A kept
 *             conversation is not replayed: only the client has all of it, and is told
 *
 * Whether a failure also counts against its worker (router/breaker.h) is in the same table.
 *
 * Loop thread. */
#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "router/record.h"
#include "router/relay_internal.h"
#include "telemetry/metrics.h"

enum {
    EXCLUDE_MS = 250, /* how long a failed worker is not tried again, at the first replay */
    TENANT_FULL_RETRY_MS = 1000,
};

typedef enum remedy { TELL = 1, WAIT, REPLAY, COUNTED } remedy; /* COUNTED: REPLAY, and it counts */

/* Returns what a failure calls for, by its status and origin. A failure without an origin comes from gRPC
 * or from a worker that states none. ENOMEM with the origin `worker` means that it ran out of memory, which
 * another may have; otherwise something is too large for any worker. An unknown ticket (ENOTFOUND) and an
 * expired lease (ECANCELLED) happen to healthy workers. */
static remedy remedy_for(fv_status st, fv_origin origin) {
    /* clang-format off */
    static const remedy table[FV_N_STATUS][FV_N_ORIGIN] = {
        /* status           unstated  caller checkpoint hand-off worker */
        [FV_EINVAL] =       {TELL,    TELL,  TELL,      TELL,    TELL},
        [FV_EUNSUPPORTED] = {TELL,    TELL,  TELL,      TELL,    TELL},
        [FV_EFATAL] =       {TELL,    TELL,  TELL,      TELL,    TELL},
        [FV_ENOMEM] =       {TELL,    TELL,  TELL,      TELL,    REPLAY},
        [FV_EBUSY] =        {WAIT,    WAIT,  WAIT,      WAIT,    WAIT},
        [FV_ENOTFOUND] =    {REPLAY,  TELL,  TELL,      REPLAY,  REPLAY},
        [FV_ECANCELLED] =   {REPLAY,  TELL,  REPLAY,    REPLAY,  REPLAY},
        [FV_EDATA] =        {COUNTED, TELL,  TELL,      COUNTED, COUNTED},
        [FV_EDEADLINE] =    {COUNTED, TELL,  COUNTED,   COUNTED, COUNTED},
        [FV_EIO] =          {COUNTED, TELL,  COUNTED,   COUNTED, COUNTED},
        [FV_EDEVICE] =      {COUNTED, TELL,  COUNTED,   COUNTED, COUNTED},
        [FV_EAUTH] =        {COUNTED, TELL,  COUNTED,   COUNTED, COUNTED},
        [FV_EDENIED] =      {COUNTED, TELL,  COUNTED,   COUNTED, COUNTED},
    };
    /* clang-format on */
    return table[st][origin];
}

bool fv_failure_counts(fv_status st, fv_origin origin) {
    return st != FV_OK && remedy_for(st, origin) == COUNTED;
}

static void note(fv_request *r, const fv_failure *f) {
    snprintf(r->last_p, sizeof r->last_p, "%s", f->p);
    snprintf(r->last_d, sizeof r->last_d, "%s", f->d);
    r->exclude_p = f->exclude_p;
    r->exclude_d = f->exclude_d;
    snprintf(r->why, sizeof r->why, "%s", fv_last_error());
}

static void requeue(fv_request *r) {
    fv_request_set_state(r, FV_REQUEST_QUEUED);
    fv_relay_dispatch(r->relay);
}

/* Requeues: the worker without memory gets nothing until it reports (note_room); others may have some. */
static void wait_for_room(fv_request *r) {
    fv_metric_add(FV_METRIC_REQUEUES, 0, 1);
    FV_LOG(DEBUG, ROUTER,
           "req=%s tenant?=%s trace?=%s event=no-room prefill=%s decode=%s why=\"%s\"", r->id,
           r->tenant->name, r->trace_id, r->last_p, r->last_d, r->why);
    requeue(r);
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
    requeue(r);
}

void fv_request_failed(fv_request *r, const fv_failure *f) {
    double now_s = fv_clock_s();
    double slack_ms = f->status == FV_EDEADLINE ? FV_DEADLINE_SLACK_MS : 0;
    note(r, f);
    switch (remedy_for(f->status, f->origin)) {
    case TELL: fv_request_finish(r, f->status); break;
    case WAIT:
        if (!end_if_tenant_full(r)) wait_for_room(r);
        break;
    case REPLAY:
    case COUNTED:
        if (fv_request_left_ms(r, now_s) <= slack_ms)
            fv_request_finish(r, fv_request_timed_out(r, now_s));
        else
            replay(r);
        break;
    }
}
