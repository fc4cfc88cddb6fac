/* The choice of workers: filter by room, draw two, compare. */
#include "router/balancer.h"

#include <string.h>

#include "common/random.h"

enum {
    FREE_SLACK = 4
}; /* answers that a decode worker may have beyond twice another one's, to get what it keeps */

/* Bytes of a decode worker's KV in use: the larger of what it reports (held, granted, and requested by
 * waiting requests) and what our running requests have reserved. */
static uint64_t bytes_used(const fv_registered_worker *w) {
    uint64_t reported = w->load.bytes_granted + w->load.bytes_held + w->load.bytes_waiting;
    return reported > w->bytes_taken ? reported : w->bytes_taken;
}

/* Whether a prefill worker can take images of this many pixels: by its report or our reservations, as
 * for bytes. Part of the room is for small requests only. */
static bool can_decode(const fv_registered_worker *w, uint64_t pixels) {
    uint64_t reported = w->load.pixels_held, most = w->load.pixels_capacity;
    uint64_t held = reported > w->pixels_taken ? reported : w->pixels_taken;
    if (most == 0 || pixels == 0 || held == 0) return true;
    if (pixels > most / FV_PIXELS_SMALL_PART) most -= most / FV_PIXELS_SMALL_ROOM;
    return held <= most && pixels <= most - held;
}

static bool has_place(const fv_registered_worker *w, const fv_constraints *constraints) {
    int32_t most = constraints->ignore_slots ? 2 * FV_PREFILL_MAX : FV_PREFILL_MAX;
    return w->n_taken < most && can_decode(w, constraints->pixels);
}

/* Requests of all routers at the worker. */
static int32_t requests(const fv_registered_worker *w) { return w->n_taken + w->n_foreign; }

/* Whether the worker has fewer requests than slots, and than spare ones beyond those. */
static bool has_slots(const fv_registered_worker *w, int64_t spare) {
    int64_t slots = w->load.slots;
    int64_t unread = w->load.n_unread, unread_most = FV_UNREAD_SLOTS * slots;
    if (slots == 0) return true; /* not reported */
    if (unread > unread_most) unread = unread_most;
    return requests(w) - unread < slots + spare;
}

static bool has_slot(const fv_registered_worker *w) {
    int64_t spare = w->load.slots / 4;
    return has_slots(w, spare < FV_SPARE_SLOTS ? FV_SPARE_SLOTS : spare);
}

/* Tokens of the answer that the worker reserves KV for when it begins, beyond those that it has. */
static uint32_t tokens_at_first(const fv_registered_worker *w, const fv_constraints *c) {
    uint32_t n = w->load.tokens_expected;
    return n == 0 || c->reserve_all || n > c->tokens ? c->tokens : n;
}

uint64_t fv_balance_bytes(const fv_registered_worker *w, const fv_constraints *c) {
    uint64_t later = (c->tokens - tokens_at_first(w, c)) * c->bytes_token;
    return c->bytes > later ? c->bytes - later : 0;
}

/* The same, at least. */
static uint64_t bytes_least_at(const fv_registered_worker *w, const fv_constraints *c) {
    uint64_t first = c->bytes_prompt + tokens_at_first(w, c) * c->bytes_token;
    return first < c->bytes_least ? first : c->bytes_least;
}

bool fv_registered_worker_has_room(const fv_registered_worker *w,
                                   const fv_constraints *constraints) {
    if (w->out_of_memory) return false;
    if (w->role != FV_WORKER_DECODE) return has_place(w, constraints);
    if (!constraints->ignore_slots && !has_slot(w)) return false;
    uint64_t bytes = fv_balance_bytes(w, constraints);
    uint64_t used = bytes_used(w), capacity = w->load.bytes_capacity;
    if (capacity == 0) return true; /* not reported */
    if (capacity < constraints->bytes_least) return false;
    if (bytes > capacity) bytes = bytes_least_at(w, constraints);
    return used <= capacity && bytes <= capacity - used;
}

/* The part of a decode worker's KV that would be in use; 0 if the worker does not report its capacity. */
static double fullness(const fv_registered_worker *w, uint64_t bytes) {
    if (w->role != FV_WORKER_DECODE || w->load.bytes_capacity == 0) return 0;
    return ((double)bytes_used(w) + (double)bytes) / (double)w->load.bytes_capacity;
}

static double prefill_s(const fv_registered_worker *w, const fv_constraints *constraints) {
    if (w->role == FV_WORKER_DECODE || !constraints->estimate) return 0;
    return fv_deadline_prefill_s(constraints->estimate, w, constraints->work);
}

static fv_registered_worker *better(fv_registered_worker *a, fv_registered_worker *b,
                                    const fv_constraints *constraints) {
    double fa = fullness(a, fv_balance_bytes(a, constraints));
    double fb = fullness(b, fv_balance_bytes(b, constraints));
    double sa = prefill_s(a, constraints), sb = prefill_s(b, constraints);
    if (fa != fb) return fa < fb ? a : b;
    if (sa > 2 * sb || sb > 2 * sa) return sa < sb ? a : b;
    return requests(b) < requests(a) ? b : a;
}

static bool is_there(const fv_registered_worker *w, const fv_constraints *constraints) {
    if (constraints->where == FV_EVERYWHERE) return true;
    bool inside = strcmp(w->intro->zone, constraints->zone) == 0;
    return inside == (constraints->where == FV_INSIDE_ZONE);
}

static bool is_candidate(const fv_registered_worker *w, const fv_constraints *constraints) {
    return w->state == FV_WORKER_READY && w->role == constraints->role &&
           is_there(w, constraints) && !(constraints->no_other_suspect && w->n_suspect) &&
           fv_registered_worker_has_room(w, constraints);
}

/* Returns a random number; always 0 if the system gives none, which only makes the choice uneven. */
static uint64_t random_u64(void) {
    uint64_t x = 0;
    (void)fv_random_bytes(&x, sizeof x);
    return x;
}

/* Whether it may be drawn. */
static bool admits(const fv_registered_worker *w, const fv_constraints *c) {
    return is_candidate(w, c) && fv_breaker_admits(&w->breaker, c->now_s) &&
           strcmp(w->intro->name, c->exclude) != 0;
}

/* Draws two of many workers at random, by their numbers; NULL: few can be drawn, so all must be looked at. */
static fv_registered_worker *better_of_many(const fv_fleet *f, const fv_constraints *c) {
    enum { MANY = 32, TRIES = 24 };
    fv_registered_worker *a = NULL;
    for (int i = 0; i < TRIES && f->n_at >= MANY; i++) {
        fv_registered_worker *w = f->at[random_u64() % (uint64_t)f->n_at];
        if (w == a || !admits(w, c)) continue;
        if (a) return better(a, w, c);
        a = w;
    }
    return NULL;
}

/* Draws two workers at random in one pass: the n-th replaces either of them with probability 1/n each. */
static fv_registered_worker *better_of_two(const fv_fleet *f, const fv_constraints *constraints) {
    fv_registered_worker *a = better_of_many(f, constraints), *b = NULL;
    uint64_t n = 0;
    if (a) return a;
    for (fv_registered_worker *w = f->first; w; w = w->next) {
        if (!admits(w, constraints)) continue;
        uint64_t i = random_u64() % ++n;
        if (!a) {
            a = w;
        } else if (!b) {
            b = i ? w : a; /* in random order, because a tie is decided by it */
            if (!i) a = w;
        } else if (i < 2) {
            *(i ? &a : &b) = w;
        }
    }
    return a && b ? better(a, b, constraints) : a;
}

static fv_registered_worker *soonest_rested(const fv_fleet *f, const fv_constraints *constraints) {
    fv_registered_worker *best = NULL;
    for (fv_registered_worker *w = f->first; w; w = w->next)
        if (is_candidate(w, constraints) && !w->breaker.trial &&
            (!best || w->breaker.until_s < best->breaker.until_s))
            best = w;
    return best;
}

static fv_registered_worker *choose(const fv_fleet *f, const fv_constraints *constraints) {
    fv_constraints any = *constraints;
    any.exclude = "";
    fv_registered_worker *w = better_of_two(f, constraints);
    if (!w && *constraints->exclude && !constraints->exclude_strictly) w = better_of_two(f, &any);
    if (!w && constraints->ignore_backoff) w = soonest_rested(f, &any);
    return w;
}

/* Whether a request would begin much later at `near` than at `far`. */
static bool begins_later(const fv_registered_worker *near, const fv_registered_worker *far,
                         const fv_constraints *constraints) {
    if (near->role == FV_WORKER_DECODE) return !has_slots(near, 0) && has_slots(far, 0);
    return requests(near) > requests(far) &&
           prefill_s(near, constraints) > 2 * prefill_s(far, constraints);
}

/* A worker that has just failed, or rests, is taken only if there is no other in any zone. */
static fv_registered_worker *choose_by_zone(const fv_fleet *f, const fv_constraints *constraints) {
    if (!constraints->zone || !*constraints->zone) return choose(f, constraints);
    fv_constraints side = *constraints;
    side.ignore_backoff = false;
    side.exclude_strictly = true;
    side.where = FV_INSIDE_ZONE;
    fv_registered_worker *near = choose(f, &side);
    side.where = FV_OUTSIDE_ZONE;
    fv_registered_worker *far = choose(f, &side);
    if (near && far) return begins_later(near, far, constraints) ? far : near;
    if (near || far) return near ? near : far;
    return choose(f, constraints);
}

/* Whether an empty pool of this worker would have room. */
static bool is_large_enough(const fv_registered_worker *w, const fv_constraints *constraints) {
    uint64_t capacity = w->load.bytes_capacity;
    return capacity == 0 || constraints->bytes_least <= capacity;
}

fv_registered_worker *fv_balance_to_wait(const fv_fleet *f, const fv_constraints *constraints) {
    fv_registered_worker *best = NULL;
    for (fv_registered_worker *w = f->first; w; w = w->next) {
        if (w->state != FV_WORKER_READY || w->role != FV_WORKER_DECODE || w->out_of_memory ||
            w->n_waiting > 0)
            continue;
        if (!fv_breaker_admits(&w->breaker, constraints->now_s) || !is_large_enough(w, constraints))
            continue;
        if (constraints->no_other_suspect && w->n_suspect) continue;
        if (constraints->exclude_strictly && strcmp(w->intro->name, constraints->exclude) == 0)
            continue;
        if (!best ||
            fullness(w, constraints->bytes_least) < fullness(best, constraints->bytes_least))
            best = w;
    }
    return best;
}

/* ---- what is kept ------------------------------------------------------------------------- */

/* Expected seconds until the first token. Each request takes a while, even one that has nothing left to compute. */
static double first_token_s(const fv_registered_worker *w, const fv_constraints *c,
                            const fv_work *work) {
    return fv_deadline_prefill_s(c->estimate, w, work) +
           fv_estimate_kept_s(c->estimate, &w->pace, w->n_prompt + w->n_foreign + 1);
}

/* Times are estimates, and what is kept saves the fleet work: a little later is fine. */
static const double EARLY = 1.5;

/* A decode worker can take it at once, and would not have many more answers than w. */
static bool is_as_free(const fv_registered_worker *k, const fv_registered_worker *w) {
    return has_slots(k, 0) && requests(k) < 2 * requests(w) + FREE_SLACK;
}

/* Whether the request would be answered as early at k's worker as at w, which computes all of it. */
static bool is_as_early(const fv_kept *k, const fv_registered_worker *w, const fv_constraints *c) {
    if (c->role == FV_WORKER_DECODE) return is_as_free(k->worker, w);
    const double all = first_token_s(w, c, c->work), left = first_token_s(w, c, &k->left);
    const double more = k->seconds > all - left ? k->seconds - (all - left) : 0;
    return first_token_s(k->worker, c, &k->left) <= EARLY * (all + more);
}

/* The prefill worker that is expected to be first, the decode worker that keeps most and has fewest requests. */
static bool is_better(const fv_kept *a, const fv_kept *b, const fv_constraints *c) {
    if (c->role == FV_WORKER_DECODE && a->tokens != b->tokens) return a->tokens > b->tokens;
    if (c->role == FV_WORKER_PREFILL) {
        double sa = first_token_s(a->worker, c, &a->left),
               sb = first_token_s(b->worker, c, &b->left);
        if (sa != sb) return sa < sb;
    }
    return requests(a->worker) < requests(b->worker);
}

/* Returns a worker that keeps a beginning and would be as early as w; else w. */
static fv_registered_worker *prefer_kept(fv_registered_worker *w, const fv_constraints *c) {
    fv_constraints near = *c;
    const fv_kept *best = NULL;
    if (!w || !c->estimate || !c->work) return w;
    if (c->zone && *c->zone) near.where = FV_INSIDE_ZONE;
    for (int32_t i = 0; i < c->n_kept; i++)
        if (admits(c->kept[i].worker, &near) && (!best || is_better(&c->kept[i], best, c)))
            best = &c->kept[i];
    return best && is_as_early(best, w, c) ? best->worker : w;
}

fv_registered_worker *fv_balance(const fv_fleet *f, const fv_constraints *constraints) {
    fv_constraints apart = *constraints;
    fv_registered_worker *w = NULL;
    apart.no_other_suspect = true;
    apart.ignore_backoff = false;
    if (constraints->suspect) w = choose_by_zone(f, &apart);
    if (constraints->suspect) return w ? w : choose_by_zone(f, constraints);
    return prefer_kept(choose_by_zone(f, constraints), constraints);
}

uint64_t fv_balance_largest_capacity(const fv_fleet *f, Fovea__Inference__V1__Role role) {
    uint64_t largest = 0;
    for (const fv_registered_worker *w = f->first; w; w = w->next) {
        if (w->state == FV_WORKER_LOST || w->role != role) continue;
        if (w->load.bytes_capacity == 0) return 0;
        if (w->load.bytes_capacity > largest) largest = w->load.bytes_capacity;
    }
    return largest;
}

fv_availability fv_balance_availability(const fv_fleet *f, Fovea__Inference__V1__Role role,
                                        double now_s) {
    fv_availability s = FV_AVAILABILITY_NONE;
    for (const fv_registered_worker *w = f->first; w; w = w->next) {
        if (w->state != FV_WORKER_READY || w->role != role) continue;
        if (fv_breaker_admits(&w->breaker, now_s)) return FV_AVAILABILITY_SOME;
        s = FV_AVAILABILITY_RESTING;
    }
    return s;
}
