/* The queue and each sharer's part of it: the order, the work ahead of a request, the slots of decode workers, and
 * who gives way when the queue is full. Walks lists, because they are short. Loop thread. */
#include <inttypes.h>
#include <math.h>

#include "router/record.h"
#include "router/relay_internal.h"

enum { FULL_RETRY_MS = 1000 };

/* ---- the order -------------------------------------------------------------------------- */

static double next_start(fv_fleet *f, const fv_sharer *x) {
    const fv_fleet_part *part = fv_fleet_part_of(f, x);
    return fmax(f->virtual_time, part ? part->finish : 0);
}

static void take_out(fv_request *r) {
    fv_request **at = &r->relay->first;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    if (!*at) r->relay->tail = at;
}

void fv_relay_place(fv_request *r) {
    fv_relay *relay = r->relay;
    double work = fv_estimate_size(&r->fleet->estimate, &r->work);
    fv_fleet_part *part = fv_fleet_part_of(r->fleet, r->sharer);
    r->start = next_start(r->fleet, r->sharer);
    r->end = r->start + work / r->sharer->weight;
    if (part) part->finish = r->end;
    take_out(r);
    fv_request **at = &relay->first;
    while (*at && !((*at)->state == FV_REQUEST_QUEUED && (*at)->fleet == r->fleet &&
                    (*at)->start > r->start))
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    if (!r->next) relay->tail = &r->next;
}

fv_work fv_queue_ahead(const fv_relay *relay, fv_fleet *f, const fv_sharer *x) {
    double start = next_start(f, x);
    fv_work ahead = {0};
    for (const fv_request *r = relay->first; r; r = r->next) {
        if (r->state != FV_REQUEST_QUEUED || r->fleet != f || r->msg->conversation.len) continue;
        if (r->start > start) continue;
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
        if (w->role != FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE ||
            w->state != FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY)
            continue;
        if (w->load.slots == 0) return 0;
        n += w->load.slots;
    }
    return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

/* Whether the request has a slot of a decode worker, will have one soon, or has given it away unread. */
static bool holds_slot(const fv_request *r) { return r->attempt && r->attempt->d.worker; }

void fv_queue_look(fv_relay *relay) {
    for (fv_fleet *f = fv_registry_fleets(relay->opt.members); f; f = f->next) {
        for (size_t i = 0; i < f->n_part; i++) {
            f->part[i].n_slot = f->part[i].n_prefill = 0;
            f->part[i].blocked = f->part[i].counted = false;
        }
        f->full = f->waits = false;
        f->pass_until = HUGE_VAL;
        f->weight_all = 0;
        f->slots_all = slots_of(f);
    }
    for (const fv_request *r = relay->first; r; r = r->next) {
        fv_fleet_part *part =
            r->state == FV_REQUEST_OVER ? NULL : fv_fleet_part_of(r->fleet, r->sharer);
        if (!part) continue;
        part->n_slot += holds_slot(r);
        part->n_prefill += r->attempt && r->attempt->p.worker;
        if (!part->counted) r->fleet->weight_all += r->sharer->weight;
        part->counted = true;
    }
}

bool fv_queue_below_share(const fv_request *r) {
    const fv_fleet *f = r->fleet;
    const fv_fleet_part *part = fv_fleet_part_of(r->fleet, r->sharer);
    if (!part || f->slots_all == 0) return false;
    double share = f->slots_all * r->sharer->weight / fmax(f->weight_all, r->sharer->weight);
    return part->n_slot + 1 <= fmax(share, 1);
}

/* ---- a full queue ------------------------------------------------------------------------- */

/* The part of the queue that x would have with n more requests, or with `bytes` more, divided by its weight. */
static double part_with(const fv_sharer *x, int32_t n, size_t bytes, bool by_bytes) {
    return (by_bytes ? (double)(x->bytes_queued + bytes) : (double)(x->n_queued + n)) / x->weight;
}

/* Finds the last queued request of the sharer that has most of the queue, whose client has no tokens; NULL: `x`
 * would have as much. */
static fv_request *last_of_largest(const fv_relay *relay, const fv_sharer *x, size_t bytes,
                                   bool by_bytes) {
    double most = part_with(x, 1, bytes, by_bytes);
    const fv_sharer *largest = NULL;
    fv_request *last = NULL;
    for (fv_request *r = relay->first; r; r = r->next) {
        if (r->state != FV_REQUEST_QUEUED || r->n_token > 0 || r->sharer == x) continue;
        double has = part_with(r->sharer, 0, 0, by_bytes);
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

static bool make_room(fv_relay *relay, const fv_sharer *x, size_t bytes, bool by_bytes) {
    while (is_full(relay, bytes, by_bytes)) {
        fv_request *r = last_of_largest(relay, x, bytes, by_bytes);
        if (!r) return false;
        fv_rpc_call_retry_after(r->client, FULL_RETRY_MS);
        fv_request_finish(
            r, fv_record_refusal(FV_REASON_QUEUE_FULL,
                                 FV_FAIL(FV_EBUSY,
                                         "the queue is full, and this caller has more of it than "
                                         "others that come: send fewer requests at a time, and "
                                         "this one again later")));
        relay->bytes -= r->bytes; /* nobody needs its message any more */
        r->bytes = 0;
    }
    return true;
}

bool fv_queue_may_come(const fv_relay *relay, const fv_sharer *x) {
    return !is_full(relay, 0, false) || last_of_largest(relay, x, 0, false);
}

bool fv_queue_make_room(fv_relay *relay, const fv_sharer *x, size_t bytes) {
    return make_room(relay, x, 0, false) && make_room(relay, x, bytes, true);
}
