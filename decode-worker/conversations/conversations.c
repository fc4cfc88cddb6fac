/* A list of conversations, in which kept ones are in the order in which they were kept. A KV pool has room
 * for hundreds rather than thousands, so that walking the list costs nothing compared to a step. For the
 * pool's thread. */
#include "decode-worker/conversations/conversations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/clock.h"
#include "kv/share.h"

struct fv_conversations {
    fv_conversations_options opt;
    fv_conversation *first; /* the one that was begun or kept the longest ago */
    int32_t n_kept;
    size_t bytes; /* bytes of kept conversations */
};

static double now_s(const fv_conversations *t) {
    return t->opt.clock ? t->opt.clock(t->opt.clock_user) : fv_clock_s();
}

fv_status fv_conversations_open(const fv_conversations_options *opt, fv_conversations **out) {
    fv_conversations *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for conversations");
    t->opt = *opt;
    *out = t;
    return FV_OK;
}

static void append(fv_conversations *t, fv_conversation *x) {
    fv_conversation **at = &t->first;
    while (*at) at = &(*at)->next;
    *at = x;
    x->next = NULL;
}

static void detach(fv_conversations *t, fv_conversation *x) {
    fv_conversation **at = &t->first;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
}

static void set_in_use(fv_conversations *t, fv_conversation *x, bool in_use) {
    int sign = in_use ? -1 : 1;
    x->in_use = in_use;
    t->n_kept += sign;
    t->bytes = in_use ? t->bytes - x->bytes : t->bytes + x->bytes;
}

static void drop(fv_conversations *t, fv_conversation *x) {
    if (!x->in_use) set_in_use(t, x, true);
    detach(t, x);
    fv_kv_close(x->kv);
    free(x->ids);
    free(x->policy);
    free(x);
}

static bool is_kept_of(const fv_conversation *x, const char *owner) {
    return !x->in_use && (!owner || strcmp(fv_kv_owner(x->kv), owner) == 0);
}

/* Finds the conversation of this owner (NULL: of any) that was kept the longest ago; NULL: none. */
static fv_conversation *oldest(const fv_conversations *t, const char *owner) {
    fv_conversation *x = t->first;
    while (x && !is_kept_of(x, owner)) x = x->next;
    return x;
}

static size_t bytes_of(const fv_conversations *t, const char *owner) {
    size_t bytes = 0;
    for (const fv_conversation *x = t->first; x; x = x->next)
        if (is_kept_of(x, owner)) bytes += x->bytes;
    return bytes;
}

void fv_conversations_close(fv_conversations *t) {
    if (!t) return;
    for (fv_conversation *x; (x = oldest(t, NULL)) != NULL;) drop(t, x);
    free(t);
}

/* ---- in use ----------------------------------------------------------------------------- */

fv_status fv_conversations_begin(fv_conversations *t, fv_conversation **out) {
    fv_conversation *x = calloc(1, sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "out of memory for a conversation");
    x->in_use = true;
    append(t, x);
    *out = x;
    return FV_OK;
}

void fv_conversations_end(fv_conversations *t, fv_conversation *x) { drop(t, x); }

static fv_conversation *find(const fv_conversations *t, const uint8_t id[16]) {
    fv_conversation *x = t->first;
    while (x && !(x->named && memcmp(x->id, id, sizeof x->id) == 0)) x = x->next;
    return x;
}

fv_status fv_conversations_resume(fv_conversations *t, const uint8_t id[16], const char *owner,
                                  fv_conversation **out) {
    fv_conversations_expire(t);
    fv_conversation *x = find(t, id);
    if (!x || x->forgotten || strcmp(fv_kv_owner(x->kv), owner) != 0)
        return FV_FAIL(FV_ENOTFOUND,
                       "this worker no longer keeps the conversation: send it again in full");
    if (x->in_use)
        return FV_FAIL(FV_EINVAL, "another request is continuing this conversation: wait until it "
                                  "ends, and continue from there");
    set_in_use(t, x, true);
    *out = x;
    return FV_OK;
}

void fv_conversations_pause(fv_conversations *t, fv_conversation *x) {
    fv_kv_release_unused(x->kv, 0); /* reserved for the answer */
    set_in_use(t, x, false);
    if (x->forgotten)
        drop(t, x);
    else
        fv_conversations_expire(t);
}

/* ---- kept ------------------------------------------------------------------------------- */

static bool note_ids(fv_conversation *x, const int32_t *ids, int32_t n) {
    int32_t *grown = realloc(x->ids, (size_t)n * sizeof *grown);
    if (!grown) return false;
    memcpy(grown, ids, (size_t)n * sizeof *grown);
    x->ids = grown;
    x->n = n;
    return true;
}

static bool make_id(fv_conversation *x) {
    x->named = getrandom(x->id, sizeof x->id, 0) == sizeof x->id;
    return x->named;
}

/* Drops this owner's (NULL: all) oldest kept conversations until `bytes` fit. False: they never do. */
static bool make_room(fv_conversations *t, const char *owner, size_t max, size_t bytes) {
    if (max == 0) return true;
    if (bytes > max) return false;
    while (bytes_of(t, owner) > max - bytes) drop(t, oldest(t, owner));
    return true;
}

double fv_conversations_keep(fv_conversations *t, fv_conversation *x, const int32_t *ids, int32_t n,
                             double asked_s, size_t owner_bytes) {
    double keep_s = fmin(asked_s, t->opt.keep_s_max);
    fv_kv_release_unused(x->kv, 0);
    x->bytes = fv_kv_bytes_held(x->kv) + fv_kv_shared_bytes(x->kv);
    if (keep_s <= 0 || !note_ids(x, ids, n) || !make_id(x) ||
        !make_room(t, fv_kv_owner(x->kv), owner_bytes, x->bytes) ||
        !make_room(t, NULL, t->opt.bytes_max, x->bytes)) {
        drop(t, x);
        return 0;
    }
    x->forgotten = false; /* the request named the old id */
    x->until_s = now_s(t) + keep_s;
    detach(t, x);
    append(t, x);
    set_in_use(t, x, false);
    return keep_s;
}

void fv_conversations_forget(fv_conversations *t, const uint8_t id[16]) {
    fv_conversation *x = find(t, id);
    if (!x) return;
    x->forgotten = true;
    if (!x->in_use) drop(t, x);
}

bool fv_conversations_give_up(fv_conversations *t, const char *owner) {
    fv_conversation *x = oldest(t, owner);
    if (x) drop(t, x);
    return x != NULL;
}

void fv_conversations_stop(fv_conversations *t) {
    t->opt.keep_s_max = 0;
    for (fv_conversation *x = t->first, *next; x; x = next) {
        next = x->next;
        x->forgotten = true;
        if (!x->in_use) drop(t, x);
    }
}

int32_t fv_conversations_expire(fv_conversations *t) {
    int32_t n = 0;
    double now = now_s(t);
    for (fv_conversation *x = t->first, *next; x; x = next) {
        next = x->next;
        if (x->in_use || x->until_s > now) continue;
        drop(t, x);
        n++;
    }
    return n;
}

double fv_conversations_next_s(const fv_conversations *t) {
    double until = HUGE_VAL;
    for (const fv_conversation *x = t->first; x; x = x->next)
        if (!x->in_use) until = fmin(until, x->until_s);
    return until - now_s(t);
}

int32_t fv_conversations_kept(const fv_conversations *t) { return t->n_kept; }
size_t fv_conversations_bytes(const fv_conversations *t) { return t->bytes; }
