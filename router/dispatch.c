/* Which request starts next, and on which workers. Loop thread. */
#include "router/dispatch.h"

#include <math.h>
#include <string.h>

#include "common/clock.h"
#include "router/answer.h"
#include "router/balancer.h"
#include "router/kept.h"
#include "router/record.h"
#include "router/replay.h"

/* The callbacks of attempts. */
static const fv_attempt_events attempt_events = {.begun = fv_answer_begin,
                                                 .prompt = fv_answer_prompt,
                                                 .tokens = fv_answer_tokens,
                                                 .finished = fv_answer_finish_if_complete,
                                                 .failed = fv_request_failed};

/* ---- deadlines -------------------------------------------------------------------------- */

/* Fails if a request that needs `seconds` from now on would be too late. A client that has tokens gets further
 * ones until the deadline, and an idle fleet tries every request. */
static fv_status check_left(const fv_request *r, double seconds, double now_s) {
    if (r->n_token > 0 || r->fleet->n_running == 0) return FV_OK;
    return fv_deadline_start(seconds, 1e-3 * fv_request_left_ms(r, now_s), now_s - r->arrived_s);
}

static bool end_hopeless(fv_request *r, double seconds, double now_s) {
    fv_status st = check_left(r, seconds, now_s);
    if (st == FV_OK) return false;
    r->relay->n_expired++;
    fv_request_finish(r, fv_record_refusal(FV_REASON_EXPIRED, st));
    return true;
}

bool fv_dispatch_end_if_hopeless(fv_request *r, double now_s) {
    static const fv_work nothing = {0};
    const fv_fleet *f = r->fleet;
    fv_outlook o = fv_deadline_look(&f->estimate, f->first, &nothing, &r->work);
    return end_hopeless(r, o.fleet_s, now_s);
}

/* ---- the queue -------------------------------------------------------------------------- */

static uint32_t tokens_left(const fv_request *r) {
    return r->need.max_tokens > r->n_token ? r->need.max_tokens - r->n_token : 0;
}

/* The last token of an answer comes from the prefill worker alone. */
static bool needs_decode(const fv_request *r) { return tokens_left(r) > 1; }

/* Chooses a decode worker. If none has a free slot, a sharer with fewer slots than its share gets a worker without:
 * the worker takes a slot from another answer (decode-worker/schedule/shares.h). *no_slot: there is memory, but
 * no slot. */
static fv_registered_worker *choose_decode(const fv_request *r, fv_constraints constraints,
                                           bool *no_slot) {
    fv_registered_worker *d = fv_balance(r->fleet, &constraints);
    if (d) return d;
    constraints.ignore_slots = true;
    d = fv_balance(r->fleet, &constraints);
    *no_slot = d && !fv_queue_below_share(r);
    if (*no_slot) return NULL;
    return d ? d : fv_balance_to_wait(r->fleet, &constraints);
}

/* Chooses a prefill worker. A sharer without a request at any worker also gets one that has as many requests as it
 * can start soon: the worker shares its threads (serving/worker/fair.h). */
static fv_registered_worker *choose_prefill(const fv_request *r, fv_constraints constraints) {
    const fv_fleet_share *share = fv_fleet_share_of(r->fleet, r->sharer);
    fv_registered_worker *p = fv_balance(r->fleet, &constraints);
    if (p || !share || share->n_prefill > 0) return p;
    constraints.ignore_slots = true;
    return fv_balance(r->fleet, &constraints);
}

/* The resource that a request waits for. */
typedef enum lack {
    LACKS_NOTHING = 0,
    LACKS_MEMORY, /* of a decode worker */
    LACKS_SLOT,   /* of a decode worker */
    LACKS_PLACE,  /* at a prefill worker */
} lack;

static lack choose_pair(const fv_request *r, bool wake, double now_s, fv_registered_worker **p,
                        fv_registered_worker **d) {
    const fv_fleet *f = r->fleet;
    fv_constraints constraints = {.role = FV_WORKER_DECODE,
                                  .pixels = r->need.pixels,
                                  .suspect = r->n_lost > 0,
                                  .no_other_suspect = r->n_lost > 1,
                                  .exclude = r->exclude_d ? r->last_d : "",
                                  .exclude_strictly = now_s < r->exclude_until_s,
                                  .ignore_backoff = wake,
                                  .zone = r->relay->opt.zone,
                                  .now_s = now_s,
                                  .estimate = &f->estimate,
                                  .work = &r->work};
    bool no_slot = false;
    fv_kept kept[FV_KEPT_MAX];
    fv_attempt_need(r, &constraints);
    constraints.kept = kept;
    constraints.n_kept = fv_kept_find(r, FV_WORKER_DECODE, kept);
    *d = NULL;
    if (needs_decode(r) && !(*d = choose_decode(r, constraints, &no_slot)))
        return no_slot ? LACKS_SLOT : LACKS_MEMORY;
    constraints.role = FV_WORKER_PREFILL;
    if (*d && *(*d)->intro->zone) constraints.zone = (*d)->intro->zone;
    constraints.exclude = r->exclude_p ? r->last_p : "";
    constraints.n_kept = fv_kept_find(r, FV_WORKER_PREFILL, kept);
    return (*p = choose_prefill(r, constraints)) ? LACKS_NOTHING : LACKS_PLACE;
}

static fv_status no_worker_error(const fv_request *r, fv_availability p) {
    const char *role = p == FV_AVAILABILITY_SOME ? "decode" : "prefill";
    if (!*r->why) return FV_FAIL(FV_EIO, "no %s worker is available; try again later", role);
    return FV_FAIL(FV_EIO,
                   "%s, and no other %s worker is available; it is safe to send the request again",
                   r->why, role);
}

/* Measures the queue's speed when a request leaves it while others wait. */
static void measure_drained(fv_request *r, double now_s) {
    fv_fleet *f = r->fleet;
    if (f->waiting_since_s == 0) return;
    fv_estimate_drained(&f->estimate, &r->work, now_s - f->waiting_since_s, now_s);
    f->waiting_since_s = now_s;
}

/* Marks that a request has to wait, and which requests wait behind it: for memory all of its fleet; for a slot or a
 * place those of its sharer; for a place also those of others that start after its finish tag. */
static void mark_blocked(fv_request *r, lack why) {
    fv_fleet *f = r->fleet;
    fv_fleet_share *share = fv_fleet_share_of(f, r->sharer);
    f->has_waiting = true;
    if (share && why != LACKS_MEMORY)
        share->blocked = true;
    else
        f->waits_for_memory = true;
    if (why == LACKS_PLACE) f->overtake_before = fmin(f->overtake_before, r->finish_tag);
}

/* Starts a request, ends it, or leaves it in the queue, perhaps with requests behind it. */
static void try_start(fv_request *r, double now_s) {
    const fv_relay_options *opt = &r->relay->opt;
    fv_fleet *f = r->fleet;
    fv_availability p = fv_balance_availability(f, FV_WORKER_PREFILL, now_s);
    fv_availability d = needs_decode(r) ? fv_balance_availability(f, FV_WORKER_DECODE, now_s)
                                        : FV_AVAILABILITY_SOME;
    bool no_worker = p != FV_AVAILABILITY_SOME || d != FV_AVAILABILITY_SOME, wake = false;
    if (r->naming) return;
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
        fv_request_finish(r, fv_record_refusal(FV_REASON_NO_WORKER, no_worker_error(r, p)));
        return;
    }
    if (!no_worker && (why = choose_pair(r, false, now_s, &to_p, &to_d))) {
        if (now_s >= r->exclude_until_s && r->n_lost <= 1) mark_blocked(r, why);
        return;
    }
    const fv_estimate *e = &f->estimate;
    double seconds = fv_deadline_prefill_s(e, to_p, &r->work);
    if (to_d) seconds += fv_deadline_decode_s(e, to_d, &r->work);
    if (check_left(r, seconds, now_s) != FV_OK) {
        fv_dispatch_end_if_hopeless(r, now_s); /* if not, the next draw may give faster workers */
        return;
    }
    measure_drained(r, now_s);
    f->virtual_time = fmax(f->virtual_time, r->start_tag);
    fv_fleet_share *share = fv_fleet_share_of(f, r->sharer);
    if (share) share->n_slot += to_d != NULL;
    if (share) share->n_prefill++;
    fv_request_start(r, &attempt_events, to_p, to_d);
}

/* ---- conversations ---------------------------------------------------------------------- */

static fv_status conversation_gone(const char *name, const char *how) {
    return FV_FAIL(FV_ENOTFOUND,
                   "the conversation was kept by decode worker %s, which %s: send the whole "
                   "conversation again",
                   name, how);
}

/* Gives the worker that keeps the conversation; NULL with FV_OK while it may still join. */
static fv_status find_keeping_worker(fv_request *r, double now_s, fv_registered_worker **out) {
    const ProtobufCBinaryData *c = &r->msg->conversation;
    const fv_relay_options *opt = &r->relay->opt;
    char name[FV_CONVERSATION_BYTES_MAX + 1] = "";
    memcpy(name, c->data + FV_CONVERSATION_ID_BYTES, c->len - FV_CONVERSATION_ID_BYTES);
    fv_registered_worker *w = fv_registry_find(opt->members, name);
    bool young = 1e3 * (now_s - r->relay->opened_s) < (double)opt->wait_ms;
    *out = NULL;
    if (!w && young) return FV_OK; /* after a restart of the router, workers are about to join */
    if (!w || w->role != FV_WORKER_DECODE) return conversation_gone(name, "is not in the fleet");
    if (w->state == FV_WORKER_LOST) return conversation_gone(name, "was lost");
    if (w->state == FV_WORKER_DRAINING) return conversation_gone(name, "is shutting down");
    bool well = w->state == FV_WORKER_READY;
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

static void try_continue(fv_request *r, double now_s) {
    fv_registered_worker *w;
    fv_status st = find_keeping_worker(r, now_s, &w);
    /* A follow-up holds memory while it waits for a slot, but not for long: the worker shares its slots. */
    fv_constraints constraints = {.ignore_slots = true};
    fv_attempt_need(r, &constraints);
    if (st == FV_OK && w && fv_registered_worker_has_room(w, &constraints)) {
        if (!end_hopeless(r, fv_deadline_decode_s(&w->fleet->estimate, w, &r->work), now_s))
            fv_request_start(r, &attempt_events, NULL, w);
    } else if (st != FV_OK) {
        fv_request_finish(r, st);
    }
}

/* Requeues a request that waits for memory at a decode worker if another worker has room. */
static void requeue_if_room_elsewhere(fv_request *r, double now_s) {
    fv_constraints constraints = {.role = FV_WORKER_DECODE,
                                  .exclude = r->attempt->d.name,
                                  .exclude_strictly = true,
                                  .now_s = now_s};
    fv_attempt_need(r, &constraints);
    if (fv_balance(r->fleet, &constraints)) fv_request_requeue(r);
}

/* ---- whose turn it is ------------------------------------------------------------------- */

/* A sharer without a request at any prefill worker takes no place that others wait for (choose_prefill), so it overtakes
 * them: their requests may hold places for long and use little, as those whose grammars are being compiled. */
static bool is_blocked(const fv_request *r) {
    const fv_fleet_share *share = fv_fleet_share_of(r->fleet, r->sharer);
    const bool holds_none = share && share->n_prefill == 0;
    return r->fleet->waits_for_memory || (share && share->blocked) ||
           (!holds_none && r->start_tag >= r->fleet->overtake_before);
}

void fv_dispatch(fv_relay *relay) {
    double now_s = fv_clock_s();
    fv_queue_begin_pass(relay);
    for (fv_request *r = relay->first; r; r = r->next) {
        if (r->attempt && fv_attempt_waits(r->attempt)) requeue_if_room_elsewhere(r, now_s);
        if (r->state != FV_REQUEST_QUEUED) continue;
        if (r->msg->conversation.len)
            try_continue(r, now_s);
        else if (!is_blocked(r))
            try_start(r, now_s);
    }
    for (fv_fleet *f = fv_registry_fleets(relay->opt.members); f; f = f->next)
        if (!f->has_waiting)
            f->waiting_since_s = 0;
        else if (f->waiting_since_s == 0)
            f->waiting_since_s = now_s;
    relay->dispatch_due = false; /* what this pass has ended or requeued waits for the next event */
}
