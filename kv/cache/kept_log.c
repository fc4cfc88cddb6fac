/* A table of changes under a mutex, which is held for one change or one read of a few. The changes are in a list by their
 * numbers; two hash tables find them by digest and by key. Numbers instead of pointers, so that a change takes 56 bytes. */
#include "kv/cache/kept_log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = 0 }; /* changes are counted from 1 */

typedef enum table { BY_DIGEST = 0, BY_KEY, N_TABLE } table;

typedef struct change {
    uint64_t name[N_TABLE]; /* the digest; the beginning of the key */
    uint64_t number;
    uint32_t next[N_TABLE]; /* in its bucket */
    uint32_t older, newer;
    uint32_t tokens;
    float seconds;
} change;

struct fv_kept_log {
    pthread_mutex_t mutex;
    uint32_t n, n_max; /* change[1..n] are in use */
    uint32_t n_bucket; /* a power of two */
    uint32_t oldest, newest;
    uint64_t number; /* of the last change */
    change *change;  /* [n_max + 1] */
    uint32_t *bucket[N_TABLE];
};

fv_status fv_kept_log_open(int32_t n_max, fv_kept_log **out) {
    if (n_max < 1 || n_max > FV_KEPT_LOG_MAX)
        return FV_FAIL(FV_EINVAL, "a log of %d kept prompts; it must be 1..%d", n_max,
                       FV_KEPT_LOG_MAX);
    fv_kept_log *l = calloc(1, sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for the log of kept prompts");
    l->n_max = (uint32_t)n_max;
    l->n_bucket = 1;
    while (l->n_bucket < l->n_max) l->n_bucket *= 2;
    l->change = calloc((size_t)l->n_max + 1, sizeof *l->change);
    for (int t = 0; t < N_TABLE; t++) l->bucket[t] = calloc(l->n_bucket, sizeof *l->bucket[t]);
    if (!l->change || !l->bucket[BY_DIGEST] || !l->bucket[BY_KEY] ||
        pthread_mutex_init(&l->mutex, NULL) != 0) {
        for (int t = 0; t < N_TABLE; t++) free(l->bucket[t]);
        free(l->change);
        free(l);
        return FV_FAIL(FV_ENOMEM, "out of memory for the log of kept prompts");
    }
    *out = l;
    return FV_OK;
}

void fv_kept_log_close(fv_kept_log *l) {
    if (!l) return;
    pthread_mutex_destroy(&l->mutex);
    for (int t = 0; t < N_TABLE; t++) free(l->bucket[t]);
    free(l->change);
    free(l);
}

/* ---- the tables --------------------------------------------------------------------------------- */

/* Names are uniform: they are digests. */
static uint32_t *bucket_of(const fv_kept_log *l, table t, uint64_t name) {
    return &l->bucket[t][name & (l->n_bucket - 1)];
}

static uint32_t find(const fv_kept_log *l, table t, uint64_t name) {
    uint32_t i = *bucket_of(l, t, name);
    while (i && l->change[i].name[t] != name) i = l->change[i].next[t];
    return i;
}

static void enter(fv_kept_log *l, table t, uint32_t i) {
    uint32_t *at = bucket_of(l, t, l->change[i].name[t]);
    l->change[i].next[t] = *at;
    *at = i;
}

static void remove_from(fv_kept_log *l, table t, uint32_t i) {
    uint32_t *at = bucket_of(l, t, l->change[i].name[t]);
    while (*at != i) at = &l->change[*at].next[t];
    *at = l->change[i].next[t];
}

/* ---- the list ------------------------------------------------------------------------------------ */

static void detach(fv_kept_log *l, uint32_t i) {
    change *c = l->change;
    *(c[i].older ? &c[c[i].older].newer : &l->oldest) = c[i].newer;
    *(c[i].newer ? &c[c[i].newer].older : &l->newest) = c[i].older;
}

static void append(fv_kept_log *l, uint32_t i) {
    change *c = l->change;
    c[i].older = l->newest;
    c[i].newer = NONE;
    *(l->newest ? &c[l->newest].newer : &l->oldest) = i;
    l->newest = i;
    c[i].number = ++l->number;
}

/* Returns a change that is in no table and no list: a new one, or the oldest. */
static uint32_t take(fv_kept_log *l) {
    if (l->n < l->n_max) return ++l->n;
    uint32_t i = l->oldest;
    detach(l, i);
    remove_from(l, BY_DIGEST, i);
    remove_from(l, BY_KEY, i);
    return i;
}

/* ---- changes -------------------------------------------------------------------------------------- */

static uint64_t name_of(const uint8_t key[FV_DIGEST_BYTES]) {
    uint64_t name;
    memcpy(&name, key, sizeof name);
    return name;
}

static void keep(fv_kept_log *l, uint64_t key, const fv_kept_change *what) {
    uint32_t i = find(l, BY_DIGEST, what->digest);
    change *c = &l->change[i];
    if (i && c->tokens == what->tokens && c->name[BY_KEY] == key) return;
    if (i) {
        detach(l, i);
        remove_from(l, BY_KEY, i);
    } else {
        i = take(l);
        c = &l->change[i];
        c->name[BY_DIGEST] = what->digest;
        enter(l, BY_DIGEST, i);
    }
    c->name[BY_KEY] = key;
    c->tokens = what->tokens;
    c->seconds = what->seconds;
    enter(l, BY_KEY, i);
    append(l, i);
}

static void drop(fv_kept_log *l, uint64_t key) {
    for (uint32_t i = *bucket_of(l, BY_KEY, key); i; i = l->change[i].next[BY_KEY]) {
        change *c = &l->change[i];
        if (c->name[BY_KEY] != key || c->tokens == 0) continue;
        c->tokens = 0;
        detach(l, i);
        append(l, i);
    }
}

void fv_kept_log_keep(fv_kept_log *l, const uint8_t key[FV_DIGEST_BYTES],
                      const fv_kept_change *what) {
    if (!l || what->tokens == 0) return;
    pthread_mutex_lock(&l->mutex);
    keep(l, name_of(key), what);
    pthread_mutex_unlock(&l->mutex);
}

void fv_kept_log_drop(fv_kept_log *l, const uint8_t key[FV_DIGEST_BYTES]) {
    if (!l) return;
    pthread_mutex_lock(&l->mutex);
    drop(l, name_of(key));
    pthread_mutex_unlock(&l->mutex);
}

/* Finds the first change after the cursor, from the newest on: most readers have nearly all. */
static uint32_t first_after(const fv_kept_log *l, uint64_t cursor) {
    uint32_t i = l->newest, first = NONE;
    for (; i && l->change[i].number > cursor; i = l->change[i].older) first = i;
    return first;
}

int32_t fv_kept_log_read(fv_kept_log *l, uint64_t *cursor, fv_kept_change *out, int32_t n) {
    int32_t n_out = 0;
    if (!l) return 0;
    pthread_mutex_lock(&l->mutex);
    for (uint32_t i = first_after(l, *cursor); i && n_out < n; i = l->change[i].newer) {
        const change *c = &l->change[i];
        out[n_out++] = (fv_kept_change){c->name[BY_DIGEST], c->tokens, c->seconds};
        *cursor = c->number;
    }
    pthread_mutex_unlock(&l->mutex);
    return n_out;
}
