/* The list of requests: which one starts next and on which workers, time limits, and the end of each.
 * Loop thread. */
#include "router/relay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/mac.h"
#include "common/clock.h"
#include "common/log.h"
#include "router/balancer.h"
#include "router/record.h"

enum { LOG_EVERY_S = 10 };

#define PREFILL_ROLE FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL
#define DECODE_ROLE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE

/* ---- a request's life ------------------------------------------------------------------- */

fv_status fv_request_open(fv_relay *relay, fv_rpc_call *client, fv_tenant_use *tenant,
                          fv_sharer *sharer, fv_request **out) {
    fv_request *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "no memory for another request");
    fv_status st = fv_tenancy_begin(tenant, client);
    if (st != FV_OK) {
        free(r);
        return st;
    }
    r->tenant = tenant;
    r->sharer = sharer;
    r->relay = relay;
    r->client = client;
    r->arrived_s = r->taken_over_s = fv_clock_s();
    *relay->tail = r;
    relay->tail = &r->next;
    relay->n_alive++;
    *out = r;
    return FV_OK;
}

static void take_out(fv_request *r) {
    fv_relay *relay = r->relay;
    fv_request **at = &relay->first;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    if (!*at) relay->tail = at;
}

void fv_request_close(fv_request *r) {
    fv_relay *relay = r->relay;
    fv_request_end(r);
    take_out(r);
    fv_tenancy_end(r->tenant);
    fv_sharer_give(r->sharer);
    if (r->fleet) r->fleet->n_request--;
    relay->bytes -= r->bytes;
    relay->n_alive--;
    free(r->id_of);
    free(r->digest_of);
    free(r);
}

/* Counts a request that enters the queue (by = 1) or leaves it (-1). */
static void count_queued(fv_request *r, int32_t by) {
    r->relay->n_queued += by;
    r->fleet->n_queued += by;
    r->sharer->n_queued += by;
    if (by > 0)
        r->sharer->bytes_queued += r->bytes;
    else
        r->sharer->bytes_queued -= r->bytes;
    if (r->msg->conversation.len) return;
    r->fleet->queued.prompt += (uint64_t)by * r->work.prompt;
    r->fleet->queued.answer += (uint64_t)by * r->work.answer;
    r->fleet->queued.pixels += (uint64_t)by * r->work.pixels;
}

void fv_request_set_fleet(fv_request *r, fv_fleet *f, const fv_need *need, const fv_work *work) {
    bool queued = r->state == FV_REQUEST_QUEUED;
    if (queued) count_queued(r, -1);
    if (r->fleet) r->fleet->n_request--;
    f->n_request++;
    r->fleet = f;
    r->need = *need;
    r->work = *work;
    if (queued) count_queued(r, 1);
}

void fv_request_set_state(fv_request *r, fv_request_state to) {
    int32_t running = (to == FV_REQUEST_RUNNING) - (r->state == FV_REQUEST_RUNNING);
    double now_s = fv_clock_s();
    if (r->state == FV_REQUEST_QUEUED) {
        count_queued(r, -1);
        fv_trace_queued(r, now_s);
    }
    if (to == FV_REQUEST_QUEUED) {
        count_queued(r, 1);
        r->queued_s = now_s;
    }
    r->relay->n_running += running;
    r->fleet->n_running += running;
    r->state = to;
}

void fv_request_end(fv_request *r) {
    if (r->state == FV_REQUEST_OVER) return;
    fv_request_set_state(r, FV_REQUEST_OVER);
    if (r->attempt) fv_attempt_abandon(r->attempt);
    fv_relay_dispatch(r->relay);
}

void fv_request_finish(fv_request *r, fv_status st) {
    if (r->state == FV_REQUEST_OVER) return;
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

double fv_request_left_ms(const fv_request *r, double now_s) {
    double own = (double)r->relay->opt.deadline_ms - 1e3 * (now_s - r->arrived_s);
    double clients = (double)fv_rpc_call_left_ms(r->client);
    return own < clients ? own : clients;
}

fv_status fv_request_timed_out(const fv_request *r, double now_s) {
    double s = now_s - r->arrived_s;
    if (r->state == FV_REQUEST_QUEUED && r->n_token == 0)
        return FV_FAIL(FV_EDEADLINE, "the fleet had no free memory for %.1f s; try again later", s);
    return FV_FAIL(FV_EDEADLINE,
                   "the answer was not complete after %.1f s: ask for fewer tokens, or start the "
                   "router with a larger --deadline-ms",
                   s);
}

/* ---- deadlines -------------------------------------------------------------------------- */

static double left_s(const fv_request *r, double now_s) {
    return 1e-3 * fv_request_left_ms(r, now_s);
}

/* An idle fleet tries every request, because its measurements may be old. */
fv_status fv_relay_check_time(fv_relay *relay, fv_fleet *f, fv_rpc_call *client,
                              const fv_sharer *sharer, const fv_work *w) {
    const fv_relay_options *opt = &relay->opt;
    double left_ms = fmin((double)fv_rpc_call_left_ms(client), (double)opt->deadline_ms), retry_s;
    if (f->n_queued + f->n_running == 0) return FV_OK;
    fv_work ahead = fv_queue_ahead(relay, f, sharer);
    fv_outlook o = fv_deadline_look(&f->estimate, f->first, &ahead, w);
    fv_status st = fv_deadline_admit(&o, 1e-3 * left_ms, &retry_s);
    relay->n_refused += st != FV_OK;
    (void)fv_record_refusal(FV_REASON_DEADLINE, st);
    if (st == FV_EBUSY) fv_rpc_call_retry_after(client, (int64_t)ceil(1e3 * retry_s));
    return st;
}

/* Fails if a request that needs `seconds` from now on would be too late. A client that has tokens gets further
 * ones until the deadline, and an idle fleet tries every request. */
static fv_status check_left(const fv_request *r, double seconds, double now_s) {
    if (r->n_token > 0 || r->fleet->n_running == 0) return FV_OK;
    return fv_deadline_start(seconds, left_s(r, now_s), now_s - r->arrived_s);
}

static bool end_hopeless(fv_request *r, double seconds, double now_s) {
    fv_status st = check_left(r, seconds, now_s);
    if (st == FV_OK) return false;
    r->relay->n_expired++;
    fv_request_finish(r, fv_record_refusal(FV_REASON_EXPIRED, st));
    return true;
}

/* Ends a request that would be too late even on the fastest ready workers. */
static bool end_if_hopeless(fv_request *r, double now_s) {
    static const fv_work nothing = {0};
    const fv_fleet *f = r->fleet;
    fv_outlook o = fv_deadline_look(&f->estimate, f->first, &nothing, &r->work);
    return end_hopeless(r, o.fleet_s, now_s);
}

static void end_all_hopeless(fv_relay *relay, double now_s) {
    for (fv_request *r = relay->first; r; r = r->next)
        if (r->state == FV_REQUEST_QUEUED && !r->msg->conversation.len) end_if_hopeless(r, now_s);
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

fv_relay_counts fv_relay_count(const fv_relay *r) {
    double queue_s = 0;
    for (const fv_fleet *f = fv_registry_fleets(r->opt.members); f; f = f->next)
        queue_s = fmax(queue_s, fv_estimate_queue_s(&f->estimate, &f->queued));
    return (fv_relay_counts){
        .n_refused = r->n_refused, .n_expired = r->n_expired, .queue_s = queue_s};
}

/* ---- the queue -------------------------------------------------------------------------- */

static uint32_t tokens_left(const fv_request *r) {
    return r->need.max_tokens > r->n_token ? r->need.max_tokens - r->n_token : 0;
}

/* Without a decode worker: the prefill worker's token is the rest of the answer. */
static bool needs_decode(const fv_request *r) { return tokens_left(r) > 1; }

/* Chooses a decode worker; if none has a free slot, one without for a sharer that has fewer slots than its share:
 * the worker takes a slot from another answer (decode-worker/schedule/shares.h). *no_slot: there is memory, but
 * no slot. */
static fv_registered_worker *choose_decode(const fv_request *r, fv_constraints constraints,
                                           bool *no_slot) {
    fv_registered_worker *d = fv_balance(r->fleet, &constraints);
    if (d) return d;
    constraints.over_slots = true;
    d = fv_balance(r->fleet, &constraints);
    *no_slot = d && !fv_queue_below_share(r);
    if (*no_slot) return NULL;
    return d ? d : fv_balance_to_wait(r->fleet, &constraints);
}

/* Chooses a prefill worker; also one that has as many requests as it can start soon, for a sharer without a request
 * at any: the worker shares its threads (prefill-worker/service/fair.h). */
static fv_registered_worker *choose_prefill(const fv_request *r, fv_constraints constraints) {
    const fv_fleet_part *part = fv_fleet_part_of(r->fleet, r->sharer);
    fv_registered_worker *p = fv_balance(r->fleet, &constraints);
    if (p || !part || part->n_prefill > 0) return p;
    constraints.over_slots = true;
    return fv_balance(r->fleet, &constraints);
}

/* What a request waits for. */
typedef enum lack {
    LACKS_NOTHING = 0,
    LACKS_MEMORY, /* of a decode worker */
    LACKS_SLOT,   /* of a decode worker */
    LACKS_PLACE,  /* at a prefill worker */
} lack;

static lack choose_pair(const fv_request *r, bool wake, double now_s, fv_registered_worker **p,
                        fv_registered_worker **d) {
    const fv_fleet *f = r->fleet;
    fv_constraints constraints = {.role = DECODE_ROLE,
                                  .bytes = r->need.bytes,
                                  .bytes_least = r->need.bytes_least,
                                  .pixels = r->need.pixels,
                                  .suspect = r->n_lost > 0,
                                  .alone = r->n_lost > 1,
                                  .exclude = r->exclude_d ? r->last_d : "",
                                  .exclude_strictly = now_s < r->exclude_until_s,
                                  .wake = wake,
                                  .now_s = now_s,
                                  .estimate = &f->estimate,
                                  .work = &r->work};
    bool no_slot = false;
    *d = NULL;
    if (needs_decode(r) && !(*d = choose_decode(r, constraints, &no_slot)))
        return no_slot ? LACKS_SLOT : LACKS_MEMORY;
    constraints.role = PREFILL_ROLE;
    constraints.exclude = r->exclude_p ? r->last_p : "";
    return (*p = choose_prefill(r, constraints)) ? LACKS_NOTHING : LACKS_PLACE;
}

static fv_status nobody_there(const fv_request *r, fv_availability p) {
    const char *role = p == FV_AVAILABILITY_SOME ? "decode" : "prefill";
    if (!*r->why) return FV_FAIL(FV_EIO, "no %s worker is available; try again later", role);
    return FV_FAIL(FV_EIO,
                   "%s, and no other %s worker is available; it is safe to send the request again",
                   r->why, role);
}

/* Measures the queue's speed when a request leaves it while others wait. */
static void note_drained(fv_request *r, double now_s) {
    fv_fleet *f = r->fleet;
    if (f->blocked_s == 0) return;
    fv_estimate_drained(&f->estimate, &r->work, now_s - f->blocked_s, now_s);
    f->blocked_s = now_s;
}

/* Notes that a request has to wait, and which requests wait behind it: for memory all of its fleet; for a slot or a
 * place those of its sharer; for a place also those of others that start after its finish tag. */
static void block(fv_request *r, lack why) {
    fv_fleet *f = r->fleet;
    fv_fleet_part *part = fv_fleet_part_of(f, r->sharer);
    f->waits = true;
    if (part && why != LACKS_MEMORY)
        part->blocked = true;
    else
        f->full = true;
    if (why == LACKS_PLACE) f->pass_until = fmin(f->pass_until, r->end);
}

/* Starts a request, ends it, or leaves it in the queue, perhaps with requests behind it. */
static void try_start(fv_request *r, double now_s) {
    const fv_relay_options *opt = &r->relay->opt;
    fv_fleet *f = r->fleet;
    fv_availability p = fv_balance_availability(f, PREFILL_ROLE, now_s);
    fv_availability d =
        needs_decode(r) ? fv_balance_availability(f, DECODE_ROLE, now_s) : FV_AVAILABILITY_SOME;
    bool no_worker = p != FV_AVAILABILITY_SOME || d != FV_AVAILABILITY_SOME, wake = false;
    if (!no_worker) r->no_worker_s = 0;
    if (no_worker && r->no_worker_s == 0) r->no_worker_s = now_s;
    if (no_worker) {
        if (1e3 * (now_s - r->no_worker_s) < (double)opt->wait_ms) return;
        wake = p != FV_AVAILABILITY_NONE && d != FV_AVAILABILITY_NONE;
    }
    /* A replay waits until the client has read earlier tokens. */
    if (fv_rpc_call_bytes_queued(r->client) > FV_RELAY_QUEUE_BYTES / 2) return;
    fv_registered_worker *to_p, *to_d;
    lack why = LACKS_NOTHING;
    if (no_worker && !(wake && choose_pair(r, true, now_s, &to_p, &to_d) == LACKS_NOTHING)) {
        fv_request_finish(r, fv_record_refusal(FV_REASON_NO_WORKER, nobody_there(r, p)));
        return;
    }
    if (!no_worker && (why = choose_pair(r, false, now_s, &to_p, &to_d))) {
        if (now_s >= r->exclude_until_s && r->n_lost <= 1) block(r, why);
        return;
    }
    const fv_estimate *e = &f->estimate;
    double seconds = fv_deadline_prefill_s(e, to_p, &r->work);
    if (to_d) seconds += fv_deadline_decode_s(e, to_d, &r->work);
    if (check_left(r, seconds, now_s) != FV_OK) {
        end_if_hopeless(r, now_s); /* if not, the next draw may give faster workers */
        return;
    }
    note_drained(r, now_s);
    f->virtual_time = fmax(f->virtual_time, r->start);
    fv_fleet_part *part = fv_fleet_part_of(f, r->sharer);
    if (part) part->n_slot += to_d != NULL;
    if (part) part->n_prefill++;
    fv_status st = fv_attempt_start(r, to_p, to_d);
    if (st != FV_OK) fv_request_finish(r, st);
}

/* ---- conversations ---------------------------------------------------------------------- */

static fv_status conversation_gone(const char *name, const char *how) {
    return FV_FAIL(FV_ENOTFOUND,
                   "the conversation was kept by decode worker %s, which %s: send the whole "
                   "conversation again",
                   name, how);
}

/* Gives the worker that keeps the conversation; NULL with FV_OK while it may still come. */
static fv_status find_keeper(fv_request *r, double now_s, fv_registered_worker **out) {
    const ProtobufCBinaryData *c = &r->msg->conversation;
    const fv_relay_options *opt = &r->relay->opt;
    char name[FV_CONVERSATION_BYTES_MAX + 1] = "";
    memcpy(name, c->data + FV_CONVERSATION_ID_BYTES, c->len - FV_CONVERSATION_ID_BYTES);
    fv_registered_worker *w = fv_registry_find(opt->members, name);
    bool young = 1e3 * (now_s - r->relay->opened_s) < (double)opt->wait_ms;
    *out = NULL;
    if (!w && young) return FV_OK; /* after a restart of the router, workers are about to join */
    if (!w || w->role != DECODE_ROLE) return conversation_gone(name, "is not in the fleet");
    if (w->state == FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST)
        return conversation_gone(name, "was lost");
    if (w->state == FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_DRAINING)
        return conversation_gone(name, "is shutting down");
    bool well = w->state == FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY;
    if (well && fv_breaker_admits(&w->breaker, now_s)) {
        r->no_worker_s = 0;
        *out = w;
        return FV_OK;
    }
    if (r->no_worker_s == 0) r->no_worker_s = now_s;
    if (1e3 * (now_s - r->no_worker_s) < (double)opt->wait_ms) return FV_OK;
    if (!well || w->breaker.trial)
        return FV_FAIL(
            FV_EIO,
            "decode worker %s, which keeps the conversation, is not healthy now: try again "
            "later, or send the whole conversation again",
            name);
    *out = w; /* no other worker can, so it is tried before its backoff is over */
    return FV_OK;
}

static void try_follow(fv_request *r, double now_s) {
    fv_registered_worker *w;
    fv_status st = find_keeper(r, now_s, &w);
    /* A follow-up holds memory while it waits for a slot, but not for long: the worker shares its slots. */
    fv_constraints constraints = {
        .bytes = r->need.bytes, .bytes_least = r->need.bytes_least, .over_slots = true};
    if (st == FV_OK && w && fv_registered_worker_has_room(w, &constraints)) {
        if (end_hopeless(r, fv_deadline_decode_s(&w->fleet->estimate, w, &r->work), now_s)) return;
        st = fv_attempt_follow(r, w);
    }
    if (st != FV_OK) fv_request_finish(r, st);
}

/* Requeues a request that waits for memory at a decode worker if another worker has room. */
static void move_on(fv_request *r, double now_s) {
    fv_constraints constraints = {.role = DECODE_ROLE,
                                  .bytes = r->need.bytes,
                                  .bytes_least = r->need.bytes_least,
                                  .exclude = r->attempt->d.name,
                                  .exclude_strictly = true,
                                  .now_s = now_s};
    if (!fv_balance(r->fleet, &constraints)) return;
    fv_attempt_abandon(r->attempt);
    fv_request_set_state(r, FV_REQUEST_QUEUED);
}

/* ---- whose turn it is ------------------------------------------------------------------- */

static bool is_blocked(const fv_request *r) {
    const fv_fleet_part *part = fv_fleet_part_of(r->fleet, r->sharer);
    return r->fleet->full || r->start >= r->fleet->pass_until || (part && part->blocked);
}

void fv_relay_dispatch(fv_relay *relay) {
    if (relay->dispatching) return; /* no request is freed in here, so the list stays as it is */
    relay->dispatching = true;
    double now_s = fv_clock_s();
    fv_queue_look(relay);
    for (fv_request *r = relay->first; r; r = r->next) {
        if (r->attempt && fv_attempt_waits(r->attempt)) move_on(r, now_s);
        if (r->state != FV_REQUEST_QUEUED) continue;
        if (r->msg->conversation.len)
            try_follow(r, now_s);
        else if (!is_blocked(r))
            try_start(r, now_s);
    }
    for (fv_fleet *f = fv_registry_fleets(relay->opt.members); f; f = f->next)
        f->blocked_s = !f->waits ? 0 : f->blocked_s == 0 ? now_s : f->blocked_s;
    relay->dispatching = false;
}

/* Moves queued requests of a fleet that has no pair of workers any more, as after a rollout, to another fleet
 * of the model's name. */
static void move_stranded(fv_relay *relay) {
    for (fv_request *r = relay->first, *next; r; r = next) {
        next = r->next;
        if (r->state != FV_REQUEST_QUEUED || r->n_token > 0 || r->msg->conversation.len ||
            fv_fleet_pairs(r->fleet) > 0)
            continue;
        fv_fleet *to;
        const char *model = r->msg->model[0] ? r->msg->model : r->fleet->model;
        if (fv_registry_choose_fleet(relay->opt.members, model, &to) != FV_OK ||
            fv_fleet_pairs(to) == 0 || fv_request_admit(r, to) != FV_OK)
            continue;
        FV_LOG(INFO, ROUTER, "req=%s event=moved fleet=%s", r->id, r->fleet->fingerprint);
        fv_relay_place(r);
    }
}

/* ---- from outside ----------------------------------------------------------------------- */

/* Ends a request whose client has not read any of its waiting messages for unread_ms. */
static void look_unread(fv_request *r, double now_s) {
    uint64_t sent = fv_rpc_call_sent(r->client);
    if (fv_rpc_call_bytes_queued(r->client) == 0 || sent != r->n_taken_over)
        r->taken_over_s = now_s;
    r->n_taken_over = sent;
    double unread_s = now_s - r->taken_over_s;
    if (1e3 * unread_s < (double)r->relay->opt.unread_ms) return;
    fv_status st =
        FV_FAIL(FV_ECANCELLED, "the client did not read its answer for %.0f s", unread_s);
    r->taken_over_s = now_s;
    FV_LOG(INFO, ROUTER, "req=%s tenant?=%s trace?=%s event=unread tokens=%" PRIu32 " why=\"%s\"",
           r->id, r->tenant->name, r->trace_id, r->n_token, fv_last_error());
    fv_rpc_call_abort(r->client, st);
    fv_request_end(r);
}

void fv_relay_tick(fv_relay *relay) {
    double now_s = fv_clock_s();
    for (fv_request *r = relay->first; r; r = r->next) look_unread(r, now_s);
    fv_watch_tick(relay, now_s);
    for (fv_request *r = relay->first; r; r = r->next)
        if (r->state != FV_REQUEST_OVER && fv_request_left_ms(r, now_s) <= 0)
            fv_request_finish(r, fv_request_timed_out(r, now_s));
    move_stranded(relay);
    end_all_hopeless(relay, now_s);
    log_overload(relay, now_s);
    fv_relay_dispatch(relay);
}

void fv_relay_drain(fv_relay *relay, int32_t again_ms) {
    relay->draining = true;
    snprintf(relay->again_ms, sizeof relay->again_ms, "%d", again_ms);
}

void fv_relay_gone(fv_relay *relay, fv_registered_worker *w) {
    bool lost = w->state == FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST;
    if (lost) fv_blame_lost(relay, w);
    for (fv_request *r = relay->first; r; r = r->next)
        if (r->attempt) fv_attempt_lost(r->attempt, w);
    fv_relay_dispatch(relay);
}

fv_request *fv_relay_find(const fv_relay *relay, const fv_tenant_use *tenant, const char *id) {
    fv_request *r = relay->first;
    while (r && (r->state == FV_REQUEST_OVER || r->tenant != tenant || strcmp(r->id, id) != 0))
        r = r->next;
    return r;
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
    fv_request *r = fv_relay_find(relay, tenant, id);
    if (!r || n_token != strlen(r->abort_token) || !fv_mac_equal(token, r->abort_token, n_token))
        return FV_FAIL(FV_ENOTFOUND, "no request %s with this abort_token runs", id);
    fv_request_finish(r, FV_FAIL(FV_ECANCELLED, "request %s was aborted", id));
    return FV_OK;
}

int32_t fv_relay_queued(const fv_relay *r) { return r->n_queued; }
int32_t fv_relay_running(const fv_relay *r) { return r->n_running; }
int32_t fv_relay_alive(const fv_relay *r) { return r->n_alive; }

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
