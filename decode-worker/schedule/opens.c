/* Keeps the list of Opens that wait for memory, the oldest request first. For the computing thread. */
#include "decode-worker/schedule/opens.h"

#include <math.h>

#include "common/clock.h"

/* ---- the list --------------------------------------------------------------------------- */

static void enqueue(fv_opens *a, fv_open *o) {
    fv_open **at = &a->first;
    while (*at && (*at)->arrived_s <= o->arrived_s) at = &(*at)->next;
    o->next = *at;
    *at = o;
    o->waiting = true;
    a->n++;
    a->bytes += o->bytes;
    a->tried = a->tried && at != &a->first;
}

static void take_out(fv_opens *a, fv_open *o) {
    fv_open **at = &a->first;
    while (*at != o) at = &(*at)->next;
    a->tried = a->tried && at != &a->first;
    *at = o->next;
    o->waiting = false;
    a->n--;
    a->bytes -= o->bytes;
}

static void resolve(fv_opens *a, fv_open *o, fv_status st, const fv_grant *grant) {
    if (o->waiting) take_out(a, o);
    fv_receiver_count_refusal(a->receiver, st);
    o->resolved(o, st, grant);
}

/* ---- memory ------------------------------------------------------------------------------- */

static fv_status too_large(const fv_opens *a, const fv_open *o) {
    return FV_REFUSE(TOO_LARGE,
                     "prompt and answer need %llu bytes of KV, but this worker has %llu: shorten "
                     "the prompt, ask for fewer tokens, or start it with a larger --kv-bytes",
                     (unsigned long long)o->bytes, (unsigned long long)a->bytes_max);
}

static fv_status too_large_for_owner(const fv_open *o) {
    return FV_REFUSE(TOO_LARGE,
                     "prompt and answer need %llu bytes of KV, but this tenant may have %llu "
                     "on a decode worker: shorten the prompt, or ask for fewer tokens",
                     (unsigned long long)o->bytes, (unsigned long long)o->owner_bytes);
}

/* Checks the tenant's limit. A request that has waited is checked again, because the tenant may have
 * received more memory meanwhile. */
static fv_status check_owner(const fv_opens *a, const fv_open *o) {
    uint64_t most = o->owner_bytes;
    if (most == 0) return FV_OK;
    size_t held = fv_kv_pool_owned(a->pool, o->hello.owner ? o->hello.owner : "");
    if (held <= most && o->bytes <= most - held) return FV_OK;
    return FV_REFUSE(TENANT_FULL,
                     "this tenant has %zu of the %llu bytes of KV that it may have on a decode "
                     "worker, and %llu more are needed; try again later",
                     held, (unsigned long long)most, (unsigned long long)o->bytes);
}

/* Bytes that requests hold; the others are given up when memory is needed. */
static size_t in_use(const fv_opens *a) {
    return fv_kv_pool_used(a->pool) - fv_kv_pool_idle(a->pool);
}

/* Asks the receiver for a grant. Refused with NO_ROOM if there may be memory later. */
static fv_status try_now(fv_opens *a, const fv_open *o, fv_grant *grant) {
    FV_TRY(check_owner(a, o));
    fv_status st = fv_receiver_offer(a->receiver, &o->hello, &o->plan, grant);
    bool empty = in_use(a) == 0 && fv_receiver_live(a->receiver) == 0;
    return fv_refusal_of(st) == FV_REFUSED_NO_ROOM && empty && a->bytes_max ? too_large(a, o) : st;
}

static uint64_t bytes_with(const fv_opens *a, fv_open *o, uint32_t tokens) {
    o->hello.tokens_most = tokens;
    return fv_receiver_bytes(a->receiver, &o->hello, &o->plan);
}

/* Whether a prefill worker could replay the answer at the length for which o->bytes was set. Its pool holds all
 * rows uncompressed, and beside them their blocks of codes. */
static bool can_be_replayed(const fv_opens *a, const fv_open *o) {
    const fv_hello *h = &o->hello;
    int64_t rows = (int64_t)h->n_text + h->n_visual + o->plan.dup_max + h->tokens_most;
    if (o->bytes_replay == 0) return true;
    if (rows > INT32_MAX) return false;
    return fv_kv_text_bytes(fv_kv_pool_shape(a->pool), (int32_t)rows, 0) + h->bytes_tables +
               (o->plan.text.bits ? o->bytes : 0) <=
           o->bytes_replay;
}

static bool fits_with(const fv_opens *a, fv_open *o, uint32_t tokens, uint64_t most) {
    o->bytes = bytes_with(a, o, tokens);
    return o->bytes <= most && can_be_replayed(a, o);
}

/* Finds the most tokens that fit, at least 1. */
static void shorten(const fv_opens *a, fv_open *o, uint64_t most) {
    uint32_t fits = 1, not = o->hello.max_tokens;
    while (not > fits + 1) {
        uint32_t middle = fits + (not -fits) / 2;
        if (fits_with(a, o, middle, most))
            fits = middle;
        else
            not = middle;
    }
    (void)fits_with(a, o, fits, most);
}

/* Decides how many tokens the answer may have, and for how many memory is reserved. Refuses what would not fit
 * an empty pool, or its tenant's part of it. */
static fv_status size(const fv_opens *a, fv_open *o) {
    fv_hello *h = &o->hello;
    uint64_t most = a->bytes_max ? a->bytes_max : UINT64_MAX;
    if (o->owner_bytes && o->owner_bytes < most) most = o->owner_bytes;
    h->tokens_reserved = 0;
    h->arrived_s = o->arrived_s;
    if (!fits_with(a, o, h->max_tokens, most) && o->open_ended) shorten(a, o, most);
    if (a->bytes_max && o->bytes > a->bytes_max) return too_large(a, o);
    if (o->bytes > most) return too_large_for_owner(o);
    if (o->reserve_all || !a->lengths || !can_be_replayed(a, o)) return FV_OK;
    h->tokens_reserved =
        (uint32_t)fv_lengths_expect(a->lengths, h->owner ? h->owner : "", o->n_replay);
    o->bytes = fv_receiver_bytes(a->receiver, h, &o->plan);
    return FV_OK;
}

/* Whether memory was freed since the first request found too little. */
static bool may_fit(const fv_opens *a) {
    return !a->tried || in_use(a) < a->used_then || fv_receiver_live(a->receiver) < a->live_then;
}

static void note_full(fv_opens *a) {
    a->tried = true;
    a->used_then = in_use(a);
    a->live_then = fv_receiver_live(a->receiver);
}

static void serve(fv_opens *a) {
    while (a->first && !a->shut && may_fit(a)) {
        fv_grant grant;
        fv_status st = try_now(a, a->first, &grant);
        if (fv_refusal_of(st) == FV_REFUSED_NO_ROOM)
            note_full(a);
        else
            resolve(a, a->first, st, &grant);
    }
}

/* ---- asking ----------------------------------------------------------------------------- */

static fv_status worker_ends(void) {
    return FV_REFUSE(NO_ROOM, "this worker is shutting down: ask another one");
}

static void wait_for_memory(fv_opens *a, fv_open *o) {
    if (a->refusing)
        resolve(
            a, o,
            FV_REFUSE(NO_ROOM, "this worker is shutting down and accepts nothing that would wait"),
            NULL);
    else if (a->n >= a->most)
        resolve(a, o, FV_REFUSE(NO_ROOM, "%d requests already wait for memory here", a->n), NULL);
    else
        enqueue(a, o);
}

/* Grants memory if the request is the oldest; refuses what can never be granted. */
static fv_status admit(fv_opens *a, fv_open *o, bool oldest, fv_grant *grant) {
    if (a->ended) return worker_ends();
    FV_TRY(fv_receiver_check(a->receiver, &o->hello, &o->plan));
    FV_TRY(size(a, o));
    FV_TRY(check_owner(a, o));
    if (a->shut) return FV_REFUSE(NO_ROOM, "answers that have begun wait for memory");
    if (!oldest) return FV_REFUSE(NO_ROOM, "%d older requests wait for memory", a->n);
    return try_now(a, o, grant);
}

/* Asks for a request whose times are set. */
static void ask_now(fv_opens *a, fv_open *o) {
    fv_grant grant;
    serve(a);
    bool first = !a->first || o->arrived_s < a->first->arrived_s;
    fv_status st = admit(a, o, first, &grant);
    if (fv_refusal_of(st) == FV_REFUSED_NO_ROOM && o->wait_s > 0) {
        wait_for_memory(a, o);
        if (first && o->waiting && !a->shut) note_full(a);
    } else {
        resolve(a, o, st, &grant);
    }
}

/* ---- behind others ------------------------------------------------------------------------ */

static bool waits_behind(const fv_opens *a, const fv_open *o) {
    bool takes = !a->refusing && !a->ended && a->n_behind < a->most;
    return a->behind_s > 0 && o->wait_s > 0 && takes && fv_receiver_brings(a->receiver, &o->hello);
}

static void put_behind(fv_opens *a, fv_open *o, double now) {
    fv_open **at = &a->behind;
    while (*at) at = &(*at)->next;
    *at = o;
    o->next = NULL;
    o->behind_until_s = fmin(o->until_s, now + a->behind_s);
    a->n_behind++;
}

static void take_from_behind(fv_opens *a, fv_open *o) {
    fv_open **at = &a->behind;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    o->behind_until_s = 0;
    a->n_behind--;
}

/* Asks for those that need not wait any more. The first of them may be one that the others wait for from then on. */
static void serve_behind(fv_opens *a, double now) {
    for (fv_open *o = a->behind, *next; o; o = next) {
        next = o->next;
        if (now < o->behind_until_s && fv_receiver_brings(a->receiver, &o->hello)) continue;
        take_from_behind(a, o);
        ask_now(a, o);
    }
}

void fv_opens_ask(fv_opens *a, fv_open *o) {
    double now = fv_clock_s();
    o->arrived_s = now - o->age_s;
    o->until_s = now + fmin(o->wait_s, a->wait_s_max);
    o->behind_until_s = 0;
    if (waits_behind(a, o))
        put_behind(a, o, now);
    else
        ask_now(a, o);
}

void fv_opens_drop(fv_opens *a, fv_open *o) {
    bool behind = o->behind_until_s > 0;
    if (behind) take_from_behind(a, o);
    if (!o->waiting && !behind) return;
    resolve(a, o, FV_REFUSE(CLOSED, "the request for memory was cancelled"), NULL);
    serve(a);
}

/* ---- time ------------------------------------------------------------------------------- */

static fv_open *overdue(const fv_opens *a, double now) {
    fv_open *o = a->first;
    while (o && now < o->until_s) o = o->next;
    return o;
}

void fv_opens_look(fv_opens *a) {
    double now = fv_clock_s();
    serve_behind(a, now);
    serve(a);
    for (fv_open *o; (o = overdue(a, now)) != NULL;)
        resolve(a, o,
                FV_REFUSE(NO_ROOM, "no memory for %llu bytes of KV became free in time",
                          (unsigned long long)o->bytes),
                NULL);
    serve(a);
}

double fv_opens_next_s(const fv_opens *a) {
    double until = HUGE_VAL;
    for (const fv_open *o = a->first; o; o = o->next) until = fmin(until, o->until_s);
    for (const fv_open *o = a->behind; o; o = o->next) until = fmin(until, o->behind_until_s);
    return until == HUGE_VAL ? until : fmax(0, until - fv_clock_s());
}

void fv_opens_refuse(fv_opens *a) {
    a->refusing = true;
    for (fv_open *o; (o = a->behind) != NULL;) {
        take_from_behind(a, o);
        resolve(a, o, worker_ends(), NULL);
    }
    while (a->first) resolve(a, a->first, worker_ends(), NULL);
}

void fv_opens_end(fv_opens *a) {
    fv_opens_refuse(a);
    a->ended = true;
}
