/* The changes of a request's state, each made by the function that fv_request_changes names. Loop thread. */
#include "router/life.h"

#include <inttypes.h>

#include "common/clock.h"
#include "common/log.h"

static void drop_attempt(fv_request *r) {
    if (!r->attempt) return;
    fv_attempt_abandon(r->attempt);
    r->attempt = NULL;
}

void fv_request_enqueue(fv_request *r) {
    fv_request_set_state(r, FV_REQUEST_QUEUED, __func__);
    r->relay->dispatch_due = true;
}

void fv_request_start(fv_request *r, const fv_attempt_events *events, fv_registered_worker *p,
                      fv_registered_worker *d) {
    fv_status st = fv_attempt_open(r, events, &r->attempt);
    if (st == FV_OK) {
        fv_request_set_state(r, FV_REQUEST_RUNNING, __func__);
        if (r->started_s == 0) r->started_s = fv_clock_s();
        st = p ? fv_attempt_start(r->attempt, p, d) : fv_attempt_continue(r->attempt, d);
    }
    if (st != FV_OK) fv_request_finish(r, st);
}

void fv_request_requeue(fv_request *r) {
    drop_attempt(r);
    fv_request_set_state(r, FV_REQUEST_QUEUED, __func__);
    r->relay->dispatch_due = true;
}

void fv_request_end(fv_request *r) {
    if (r->state == FV_REQUEST_OVER) return;
    if (fv_request_is_active(r)) r->relay->dispatch_due = true;
    drop_attempt(r);
    fv_request_set_state(r, FV_REQUEST_OVER, __func__);
}

void fv_request_finish(fv_request *r, fv_status st) {
    if (!fv_request_is_active(r)) return;
    if (st != FV_OK && fv_status_is_callers(st))
        FV_LOG(INFO, ROUTER,
               "req=%s tenant?=%s trace?=%s event=%s status=%s tokens=%" PRIu32 " why=\"%s\"",
               r->id, r->tenant->name, r->trace_id, st == FV_ECANCELLED ? "cancelled" : "refused",
               fv_status_grpc_name(st), r->n_token, fv_last_error());
    else if (st != FV_OK)
        FV_LOG(WARN, ROUTER,
               "req=%s tenant?=%s trace?=%s event=failed status=%s tokens=%" PRIu32
               " replays=%" PRIu32 " why=\"%s\"",
               r->id, r->tenant->name, r->trace_id, fv_status_grpc_name(st), r->n_token,
               r->n_replay, fv_last_error());
    fv_rpc_call_finish(r->client, st);
    fv_request_end(r);
}

void fv_request_close(fv_request *r) {
    fv_request_end(r);
    r->client = NULL;
    if (!r->naming) r->relay->n_ended++; /* or else when that is over: router/kept.c */
}
