/* A hash table with open addressing. Expired entries stay until it is half full; then it is rebuilt
 * without them, at the size that the others need. */
#include "auth/nonces.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST = 64 };

typedef struct entry {
    uint8_t nonce[FV_NONCE_BYTES];
    uint64_t until_ms; /* 0: empty */
} entry;

struct fv_nonces {
    entry *table; /* [cap], cap a power of two */
    size_t cap, n, most;
};

static size_t place_of(const fv_nonces *s, const uint8_t *nonce) {
    uint64_t x;
    memcpy(&x, nonce, sizeof x);
    size_t i = (size_t)x & (s->cap - 1);
    while (s->table[i].until_ms && memcmp(s->table[i].nonce, nonce, FV_NONCE_BYTES) != 0)
        i = (i + 1) & (s->cap - 1);
    return i;
}

static fv_status make_table(fv_nonces *s, size_t cap) {
    entry *table = calloc(cap, sizeof *table);
    if (!table) return FV_FAIL(FV_ENOMEM, "no memory for %zu nonces", cap);
    s->table = table;
    s->cap = cap;
    return FV_OK;
}

fv_status fv_nonces_open(size_t most, fv_nonces **out) {
    fv_nonces *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "no memory for nonces");
    s->most = most;
    fv_status st = make_table(s, LEAST);
    if (st != FV_OK) {
        free(s);
        return st;
    }
    *out = s;
    return FV_OK;
}

void fv_nonces_close(fv_nonces *s) {
    if (!s) return;
    free(s->table);
    free(s);
}

static fv_status renew(fv_nonces *s, uint64_t now_ms) {
    entry *old = s->table;
    size_t n_old = s->cap, n = 0, cap = LEAST;
    for (size_t i = 0; i < n_old; i++) n += old[i].until_ms > now_ms;
    while (cap < 4 * (n + 1)) cap *= 2;
    FV_TRY(make_table(s, cap));
    for (size_t i = 0; i < n_old; i++)
        if (old[i].until_ms > now_ms) s->table[place_of(s, old[i].nonce)] = old[i];
    s->n = n;
    free(old);
    return FV_OK;
}

fv_status fv_nonces_take(fv_nonces *s, const uint8_t nonce[FV_NONCE_BYTES], uint64_t until_ms,
                         uint64_t now_ms) {
    if (2 * (s->n + 1) > s->cap || s->n >= s->most) FV_TRY(renew(s, now_ms));
    entry *e = &s->table[place_of(s, nonce)];
    if (e->until_ms > now_ms) return FV_FAIL(FV_EAUTH, "the nonce was used before");
    if (!e->until_ms) {
        if (s->n >= s->most)
            return FV_FAIL(FV_EBUSY, "too many calls (%zu) in a short time; try again later", s->n);
        s->n++;
    }
    memcpy(e->nonce, nonce, FV_NONCE_BYTES);
    e->until_ms = until_ms ? until_ms : 1;
    return FV_OK;
}

size_t fv_nonces_count(const fv_nonces *s) { return s->n; }
