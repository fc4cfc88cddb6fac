/* Walks the list of requests, because it is short. Loop thread. */
#include "router/queue.h"

#include <math.h>

#include "router/record.h"

enum { FULL_RETRY_MS = 1000 };

/* ---- the order -------------------------------------------------------------------------- */

static double next_start(fv_fleet *f, const fv_account *x) {
    const fv_fleet_share *share = fv_fleet_share_of(f, x);
    return fmax(f->virtual_time, share ? share->finish : 0);
}

void fv_queue_insert(fv_request *r) {
    double work = fv_estimate_size(&r->fleet->estimate, &r->work);
    fv_fleet_share *share = fv_fleet_share_of(r->fleet, r->sharer);
    r->start_tag = next_start(r->fleet, r->sharer);
    r->finish_tag = r->start_tag + work / r->sharer->weight;
    if (share) share->finish = r->finish_tag;
    const fv_request *next = r->relay->first;
    while (next && (next == r || next->state != FV_REQUEST_QUEUED || next->fleet != r->fleet ||
                    next->start_tag <= r->start_tag))
        next = next->next;
    fv_request_move(r, next);
}

fv_work fv_queue_ahead(const fv_relay *relay, fv_fleet *f, const fv_account *x) {
    double start = next_start(f, x);
    fv_work ahead = {0};
    for (const fv_request *r = relay->first; r; r = r->next) {
        if (r->state != FV_REQUEST_QUEUED || r->fleet != f || r->msg->conversation.len) continue;
        if (r->start_tag > start) continue;
        ahead.prompt += r->work.prompt;
        ahead.answer += r->work.answer;
        ahead.pixels += r->work.pixels;
    }
    return ahead;
}

/* ---- slots of decode workers -------------------------------------------------------------- */

static int32_t slots_of(const fv_fleet *f) {
    int64_t n = 0;
    for (const fv_registered_worker *w = f->first; w; w = w->next) {
        if (w->role != FV_WORKER_DECODE || w->state != FV_WORKER_READY) continue;
        if (w->load.slots == 0) return 0;
        n += w->load.slots;
    }
    return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

/* Whether the request has a slot of a decode worker, will have one soon, or has given it away unread. */
static bool holds_slot(const fv_request *r) { return r->attempt && r->attempt->d.worker; }

void fv_queue_begin_pass(fv_relay *relay) {
    for (fv_fleet *f = fv_registry_fleets(relay->opt.members); f; f = f->next) {
        for (size_t i = 0; i < f->n_share; i++) {
            f->share[i].n_slot = f->share[i].n_prefill = 0;
            f->share[i].blocked = f->share[i].counted = false;
        }
        f->waits_for_memory = f->has_waiting = false;
        f->overtake_before = HUGE_VAL;
        f->weight_all = 0;
        f->slots_all = slots_of(f);
    }
    for (const fv_request *r = relay->first; r; r = r->next) {
        fv_fleet_share *share =
            !fv_request_is_active(r) ? NULL : fv_fleet_share_of(r->fleet, r->sharer);
        if (!share) continue;
        share->n_slot += holds_slot(r);
        share->n_prefill += r->attempt && r->attempt->p.worker;
        if (!share->counted) r->fleet->weight_all += r->sharer->weight;
        share->counted = true;
    }
}

bool fv_queue_below_share(const fv_request *r) {
    const fv_fleet *f = r->fleet;
    const fv_fleet_share *share = fv_fleet_share_of(r->fleet, r->sharer);
    if (!share || f->slots_all == 0) return false;
    double slots = f->slots_all * r->sharer->weight / fmax(f->weight_all, r->sharer->weight);
    return share->n_slot + 1 <= fmax(slots, 1);
}

/* ---- a full queue ------------------------------------------------------------------------- */

/* Returns the part of the queue that x would have with n more requests, or with `bytes` more, over its weight. */
static double portion_with(const fv_account *x, int32_t n, size_t bytes, bool by_bytes) {
    return (by_bytes ? (double)(x->bytes_queued + bytes) : (double)(x->n_queued + n)) / x->weight;
}

/* Finds the last queued request of the sharer that has most of the queue, whose client has no tokens; NULL: `x`
 * would have as much. */
static fv_request *last_of_largest(const fv_relay *relay, const fv_account *x, size_t bytes,
                                   bool by_bytes) {
    double most = portion_with(x, 1, bytes, by_bytes);
    const fv_account *largest = NULL;
    fv_request *last = NULL;
    for (fv_request *r = relay->first; r; r = r->next) {
        if (r->state != FV_REQUEST_QUEUED || r->n_token > 0 || r->sharer == x) continue;
        double has = portion_with(r->sharer, 0, 0, by_bytes);
        if (has <= most && r->sharer != largest) continue;
        most = has;
        largest = r->sharer;
        last = r;
    }
    return last;
}

static bool is_full(const fv_relay *relay, size_t bytes, bool by_bytes) {
    return by_bytes ? relay->bytes + bytes > relay->opt.bytes_max
                    : relay->n_queued >= relay->opt.queue_max;
}

static bool make_room(fv_relay *relay, const fv_account *x, size_t bytes, bool by_bytes) {
    while (is_full(relay, bytes, by_bytes)) {
        fv_request *r = last_of_largest(relay, x, bytes, by_bytes);
        if (!r) return false;
        fv_rpc_call_retry_after(r->client, FULL_RETRY_MS);
        fv_request_finish(
            r, fv_record_refusal(FV_REASON_QUEUE_FULL,
                                 FV_FAIL(FV_EBUSY,
                                         "the queue is full, and this caller has the largest part "
                                         "of it: send fewer requests at a time, and retry this one "
                                         "later")));
        relay->bytes -= r->bytes; /* its message is not needed any more */
        r->bytes = 0;
    }
    return true;
}

bool fv_queue_admits(const fv_relay *relay, const fv_account *x) {
    return !is_full(relay, 0, false) || last_of_largest(relay, x, 0, false);
}

bool fv_queue_make_room(fv_relay *relay, const fv_account *x, size_t bytes) {
    return make_room(relay, x, 0, false) && make_room(relay, x, bytes, true);
}
