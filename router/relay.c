/* Events that concern many requests at once: time limits, the loss of a worker, the end of an event. Loop thread. */
#include "router/relay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/mac.h"
#include "common/clock.h"
#include "common/log.h"
#include "router/admission.h"
#include "router/blame.h"
#include "router/dispatch.h"
#include "router/watch.h"

enum { LOG_EVERY_S = 10 };

/* ---- opening and closing ---------------------------------------------------------------- */

fv_status fv_relay_open(const fv_relay_options *opt, fv_relay **out) {
    fv_relay *relay = calloc(1, sizeof *relay);
    if (!relay) return FV_FAIL(FV_ENOMEM, "no memory for requests");
    relay->opt = *opt;
    relay->tail = &relay->first;
    relay->opened_s = fv_clock_s();
    *out = relay;
    return FV_OK;
}

void fv_relay_close(fv_relay *relay) { free(relay); }

void fv_relay_drain(fv_relay *relay, int32_t again_ms) {
    relay->draining = true;
    snprintf(relay->again_ms, sizeof relay->again_ms, "%d", again_ms);
}

fv_relay_counts fv_relay_count(const fv_relay *r) {
    double queue_s = 0;
    for (const fv_fleet *f = fv_registry_fleets(r->opt.members); f; f = f->next)
        queue_s = fmax(queue_s, fv_estimate_queue_s(&f->estimate, &f->queued));
    return (fv_relay_counts){.n_queued = r->n_queued,
                             .n_running = r->n_running,
                             .n_alive = r->n_alive,
                             .n_refused = r->n_refused,
                             .n_expired = r->n_expired,
                             .queue_s = queue_s};
}

/* ---- the timer -------------------------------------------------------------------------- */

/* Ends a request whose client has not read any of its waiting messages for unread_ms. */
static void end_if_unread(fv_request *r, double now_s) {
    uint64_t sent = fv_rpc_call_sent(r->client);
    if (fv_rpc_call_bytes_queued(r->client) == 0 || sent != r->n_taken_over)
        r->taken_over_s = now_s;
    r->n_taken_over = sent;
    double unread_s = now_s - r->taken_over_s;
    if (1e3 * unread_s < (double)r->relay->opt.unread_ms) return;
    fv_status st = FV_FAIL(
        FV_ECANCELLED,
        "the client did not read its answer for %.0f s: read the stream, or raise the router's "
        "--unread-ms",
        unread_s);
    r->taken_over_s = now_s;
    FV_LOG(INFO, ROUTER, "req=%s tenant?=%s trace?=%s event=unread tokens=%" PRIu32 " why=\"%s\"",
           r->id, r->tenant->name, r->trace_id, r->n_token, fv_last_error());
    fv_rpc_call_abort(r->client, st);
    fv_request_end(r);
}

/* Moves queued requests of a fleet that has no pair of workers any more, as after a rollout, to another fleet
 * of the model's name. */
static void move_stranded(fv_relay *relay) {
    for (fv_request *r = relay->first, *next; r; r = next) {
        next = r->next; /* before it is moved */
        if (r->state != FV_REQUEST_QUEUED || r->n_token > 0 || r->msg->conversation.len ||
            fv_fleet_pairs(r->fleet) > 0)
            continue;
        fv_fleet *to;
        const char *model = r->msg->model[0] ? r->msg->model : r->fleet->model;
        if (fv_registry_choose_fleet(relay->opt.members, model, &to) != FV_OK ||
            fv_fleet_pairs(to) == 0 || fv_request_admit(r, to) != FV_OK)
            continue;
        FV_LOG(INFO, ROUTER, "req=%s event=moved fleet=%s", r->id, r->fleet->fingerprint);
        fv_queue_insert(r);
    }
}

static void end_all_hopeless(fv_relay *relay, double now_s) {
    for (fv_request *r = relay->first; r; r = r->next)
        if (r->state == FV_REQUEST_QUEUED && !r->msg->conversation.len)
            fv_dispatch_end_if_hopeless(r, now_s);
}

/* Logs a line every LOG_EVERY_S rather than one per request: there may be thousands. */
static void log_overload(fv_relay *relay, double now_s) {
    uint64_t n = relay->n_refused + relay->n_expired;
    if (n == relay->n_logged || now_s - relay->logged_s < LOG_EVERY_S) return;
    FV_LOG(WARN, ROUTER,
           "event=overload refused=%" PRIu64 " expired=%" PRIu64 " queued=%d queue_s=%.2f",
           relay->n_refused, relay->n_expired, relay->n_queued, fv_relay_count(relay).queue_s);
    relay->n_logged = n;
    relay->logged_s = now_s;
}

void fv_relay_tick(fv_relay *relay) {
    double now_s = fv_clock_s();
    for (fv_request *r = relay->first; r; r = r->next)
        if (r->client) end_if_unread(r, now_s);
    fv_watch_tick(relay, now_s);
    for (fv_request *r = relay->first; r; r = r->next)
        if (fv_request_is_active(r) && fv_request_left_ms(r, now_s) <= 0)
            fv_request_finish(r, fv_request_timed_out(r, now_s));
    move_stranded(relay);
    end_all_hopeless(relay, now_s);
    log_overload(relay, now_s);
    relay->dispatch_due = true; /* a request may have waited long enough */
}

/* ---- events ----------------------------------------------------------------------------- */

void fv_relay_workers_changed(fv_relay *relay) { relay->dispatch_due = true; }

/* A request that waits for memory at its decode worker loses nothing with it. */
static void lose_worker(fv_request *r, const fv_registered_worker *w) {
    if (r->attempt->d.worker == w && fv_attempt_waits(r->attempt))
        fv_request_requeue(r);
    else
        fv_attempt_lose(r->attempt, w);
}

void fv_relay_lose(fv_relay *relay, fv_registered_worker *w) {
    bool lost = w->state == FV_WORKER_LOST;
    if (lost) fv_blame_lost(relay, w);
    for (fv_request *r = relay->first; r; r = r->next)
        if (r->attempt) lose_worker(r, w);
    relay->dispatch_due = true;
}

fv_status fv_relay_abort(fv_relay *relay, const fv_tenant_use *tenant, const char *id,
                         const char *token) {
    size_t n = strlen(relay->opt.router_id), n_token = strlen(token);
    if (n_token == 0)
        return FV_FAIL(FV_EINVAL, "abort_token is missing; it is in the request's Accepted");
    if (strncmp(token, relay->opt.router_id, n) != 0 || token[n] != '/')
        return FV_FAIL(
            FV_ENOTFOUND,
            "request %s is not one of this router's (%s): it was sent to another router, or "
            "before a restart",
            id, relay->opt.router_id);
    fv_request *r = fv_request_find(relay, tenant, id);
    if (!r || n_token != strlen(r->abort_token) || !fv_mac_equal(token, r->abort_token, n_token))
        return FV_FAIL(FV_ENOTFOUND, "no running request %s with this abort_token", id);
    fv_request_finish(r, FV_FAIL(FV_ECANCELLED, "request %s was aborted", id));
    return FV_OK;
}

void fv_relay_end_event(fv_relay *relay) {
    if (relay->dispatch_due) fv_dispatch(relay);
    fv_attempts_free_over(relay);
    fv_requests_free_over(relay);
}
