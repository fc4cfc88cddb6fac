/* Each connection has a loop of its own, which runs in the calls: a call begins its operations and runs the loop until
 * they are over, which the client's deadline bounds. */
#include "kv/tier/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "redis/redis.h"

enum {
    NAME_CAP = 96,
    ASKED_MAX = 256, /* segments that are looked for at once */
};

/* A connection, for one call at a time. */
typedef struct line {
    pthread_mutex_t mutex;
    uv_loop_t loop;
    fv_redis *redis;
    bool open;
} line;

typedef struct fv_kv_store {
    fv_kv_tier tier; /* first */
    line reads, writes;
    fv_seal_keys keys;
    _Atomic uint64_t bytes_read, bytes_written, n_hit, n_miss, n_damaged, n_failed;
} fv_kv_store;

/* ---- names and lines ---------------------------------------------------------------------------- */

/* "fovea:kv:NAME", or with part >= 0 "fovea:kv:NAME:PART"; returns its length. */
static size_t name_of(const fv_seal_name *name, int64_t part, char out[NAME_CAP]) {
    size_t n = (size_t)snprintf(out, NAME_CAP, "fovea:kv:");
    for (size_t i = 0; i < sizeof name->bytes; i++, n += 2)
        snprintf(out + n, NAME_CAP - n, "%02x", name->bytes[i]);
    if (part >= 0) n += (size_t)snprintf(out + n, NAME_CAP - n, ":%" PRId64, part);
    return n;
}

/* A call waits for these. */
typedef struct waiting {
    int32_t n;    /* operations that are not over */
    fv_status st; /* the first failure */
} waiting;

static void run(line *l, const waiting *w) {
    while (w->n > 0) uv_run(&l->loop, UV_RUN_ONCE);
}

/* ---- has ---------------------------------------------------------------------------------------- */

typedef struct asked {
    waiting *w;
    bool there;
} asked;

static void on_asked(void *user, fv_status st, const void *value, size_t n) {
    asked *a = user;
    (void)value;
    a->there = st == FV_OK && n == FV_SEAL_HEAD;
    if (st != FV_OK && st != FV_ENOTFOUND) a->w->st = st;
    a->w->n--;
}

static int32_t store_has(fv_kv_tier *t, const fv_chain_key *const *key, int32_t n) {
    fv_kv_store *s = (fv_kv_store *)t;
    asked a[ASKED_MAX];
    waiting w = {0};
    int32_t begun = 0, found = 0;
    if (n > ASKED_MAX) n = ASKED_MAX;
    pthread_mutex_lock(&s->reads.mutex);
    for (; begun < n; begun++) {
        char text[NAME_CAP];
        fv_seal_name name;
        fv_redis_op *op;
        a[begun] = (asked){.w = &w};
        if (fv_seal_name_of(&s->keys, key[begun], &name) != FV_OK) break;
        if (fv_redis_get(s->reads.redis, text, name_of(&name, -1, text), on_asked, &a[begun],
                         &op) != FV_OK)
            break;
        w.n++;
    }
    if (begun < n) s->n_failed++;
    run(&s->reads, &w);
    pthread_mutex_unlock(&s->reads.mutex);
    if (w.st != FV_OK) s->n_failed++;
    while (found < begun && a[found].there) found++;
    return found;
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* A value that is copied to memory of a known size. */
typedef struct fetched {
    waiting w;
    uint8_t *to; /* [n] */
    size_t n;
} fetched;

static void on_value(void *user, fv_status st, const void *value, size_t n) {
    fetched *f = user;
    if (st == FV_OK && n != f->n)
        st = FV_FAIL(FV_EDATA, "a kept segment has a part of another size");
    if (st == FV_OK) memcpy(f->to, value, n);
    f->w.st = st;
    f->w.n--;
}

static fv_status get(line *l, const char *name, size_t n_name, void *to, size_t n) {
    fetched f = {.w = {.n = 1}, .to = to, .n = n};
    fv_redis_op *op;
    FV_TRY(fv_redis_get(l->redis, name, n_name, on_value, &f, &op));
    run(l, &f.w);
    return f.w.st;
}

/* Reads parts, each of which but the last is full, and opens them. The tag follows the rows. */
static fv_status read_parts(fv_kv_store *s, const fv_seal_name *name, fv_seal *seal, uint64_t bytes,
                            uint8_t *rows, uint8_t tag[FV_SEAL_TAG]) {
    char text[NAME_CAP];
    for (uint64_t at = 0, i = 0; at < bytes; i++) {
        uint64_t n = bytes - at < FV_KV_STORE_PART ? bytes - at : FV_KV_STORE_PART;
        FV_TRY(get(&s->reads, text, name_of(name, (int64_t)i, text), rows + at, (size_t)n));
        FV_TRY(fv_unseal_add(seal, rows + at, rows + at, (size_t)n));
        at += n;
    }
    int64_t last = (int64_t)((bytes + FV_KV_STORE_PART - 1) / FV_KV_STORE_PART);
    return get(&s->reads, text, name_of(name, last, text), tag, FV_SEAL_TAG);
}

static fv_status read_segment(fv_kv_store *s, const fv_seal_name *name, const fv_seal_head *want,
                              void *rows, double *seconds) {
    char text[NAME_CAP];
    uint8_t head[FV_SEAL_HEAD], tag[FV_SEAL_TAG];
    fv_seal seal;
    FV_TRY(get(&s->reads, text, name_of(name, -1, text), head, sizeof head));
    FV_TRY(fv_unseal_begin(&seal, &s->keys, name, head, want, seconds));
    fv_status st = read_parts(s, name, &seal, want->bytes, rows, tag);
    fv_status end = fv_unseal_end(&seal, st == FV_OK ? tag : NULL);
    return st == FV_OK ? end : st;
}

static fv_status store_read(fv_kv_tier *t, const fv_chain_key *key, const fv_seal_head *want,
                            void *rows, double *seconds) {
    fv_kv_store *s = (fv_kv_store *)t;
    fv_seal_name name;
    FV_TRY(fv_seal_name_of(&s->keys, key, &name));
    pthread_mutex_lock(&s->reads.mutex);
    fv_status st = read_segment(s, &name, want, rows, seconds);
    pthread_mutex_unlock(&s->reads.mutex);
    if (st == FV_OK) {
        s->n_hit++;
        s->bytes_read += want->bytes;
        return FV_OK;
    }
    s->n_miss++;
    if (st == FV_EDATA) s->n_damaged++;
    if (st == FV_EIO || st == FV_EBUSY) s->n_failed++;
    return FV_FAIL(FV_ENOTFOUND, "the segment is not in the store");
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void on_done(void *user, fv_status st, const void *value, size_t n) {
    waiting *w = user;
    (void)value, (void)n;
    if (st != FV_OK) w->st = st;
    w->n--;
}

static fv_status set(line *l, const char *name, size_t n_name, const void *value, size_t n) {
    const int64_t ms = (int64_t)FV_KV_STORE_DAYS * 24 * 3600 * 1000;
    waiting w = {.n = 1};
    fv_redis_op *op;
    FV_TRY(fv_redis_set(l->redis, name, n_name, value, n, ms, on_done, &w, &op));
    run(l, &w);
    return w.st;
}

static fv_status write_parts(fv_kv_store *s, const fv_seal_name *name, const fv_seal_head *head,
                             const uint8_t *rows, uint8_t *piece, uint8_t begin[FV_SEAL_HEAD]) {
    char text[NAME_CAP];
    uint8_t tag[FV_SEAL_TAG];
    fv_seal seal;
    fv_status st = FV_OK;
    int64_t i = 0;
    FV_TRY(fv_seal_begin(&seal, &s->keys, name, head, begin));
    for (uint64_t at = 0, n; at < head->bytes && st == FV_OK; at += n, i++) {
        n = head->bytes - at < FV_KV_STORE_PART ? head->bytes - at : FV_KV_STORE_PART;
        st = fv_seal_add(&seal, rows + at, piece, (size_t)n);
        if (st == FV_OK) st = set(&s->writes, text, name_of(name, i, text), piece, (size_t)n);
    }
    fv_status end = fv_seal_end(&seal, st == FV_OK ? tag : NULL);
    if (st == FV_OK) st = end;
    return st == FV_OK ? set(&s->writes, text, name_of(name, i, text), tag, sizeof tag) : st;
}

static fv_status write_segment(fv_kv_store *s, const fv_seal_name *name, const fv_seal_head *head,
                               const void *rows) {
    char text[NAME_CAP];
    uint8_t begin[FV_SEAL_HEAD], there[FV_SEAL_HEAD];
    size_t n = name_of(name, -1, text);
    fv_status st = get(&s->writes, text, n, there, sizeof there);
    if (st != FV_ENOTFOUND && st != FV_EDATA) return st; /* it is there, or nobody answers */
    uint8_t *piece = malloc(FV_KV_STORE_PART);
    if (!piece) return FV_FAIL(FV_ENOMEM, "out of memory for writing a kept segment");
    st = write_parts(s, name, head, rows, piece, begin);
    free(piece);
    return st == FV_OK ? set(&s->writes, text, n, begin, sizeof begin) : st;
}

static fv_status store_write(fv_kv_tier *t, const char *tenant, const fv_chain_key *key,
                             const fv_seal_head *head, const void *rows) {
    fv_kv_store *s = (fv_kv_store *)t;
    fv_seal_name name;
    (void)tenant; /* it is in the key */
    FV_TRY(fv_seal_name_of(&s->keys, key, &name));
    pthread_mutex_lock(&s->writes.mutex);
    fv_status st = write_segment(s, &name, head, rows);
    pthread_mutex_unlock(&s->writes.mutex);
    if (st == FV_OK) s->bytes_written += head->bytes;
    if (st != FV_OK && st != FV_ENOMEM) s->n_failed++;
    return st;
}

/* ---- opening ------------------------------------------------------------------------------------ */

static fv_tier_counters store_count(fv_kv_tier *t) {
    const fv_kv_store *s = (fv_kv_store *)t;
    return (fv_tier_counters){.bytes_read = s->bytes_read,
                              .bytes_written = s->bytes_written,
                              .n_hit = s->n_hit,
                              .n_miss = s->n_miss,
                              .n_damaged = s->n_damaged,
                              .n_failed = s->n_failed};
}

static fv_status line_open(line *l, const fv_redis_options *opt) {
    fv_redis_options own = *opt;
    pthread_mutex_init(&l->mutex, NULL);
    if (uv_loop_init(&l->loop) != 0) return FV_FAIL(FV_ENOMEM, "out of memory for a store");
    l->open = true;
    own.loop = &l->loop;
    return fv_redis_open(&own, &l->redis);
}

static void line_close(line *l) {
    if (!l->open) return;
    fv_redis_close(l->redis);
    while (uv_run(&l->loop, UV_RUN_DEFAULT)) {
    }
    uv_loop_close(&l->loop);
    pthread_mutex_destroy(&l->mutex);
}

static void store_close(fv_kv_tier *t) {
    fv_kv_store *s = (fv_kv_store *)t;
    line_close(&s->reads);
    line_close(&s->writes);
    fv_seal_keys_wipe(&s->keys);
    free(s);
}

static const fv_kv_tier_ops store_ops = {.name = "redis",
                                         .waits = true,
                                         .has = store_has,
                                         .read = store_read,
                                         .write = store_write,
                                         .count = store_count,
                                         .close = store_close};

fv_status fv_kv_store_open(const fv_kv_store_options *opt, fv_kv_tier **out) {
    fv_kv_store *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for a store");
    s->tier.ops = &store_ops;
    fv_redis_options redis = {.url = opt->url,
                              .ca = opt->ca,
                              .deadline_ms = opt->deadline_ms,
                              .value_max = FV_KV_STORE_PART};
    fv_status st = fv_seal_keys_make(opt->secret, &s->keys);
    if (st == FV_OK) st = line_open(&s->reads, &redis);
    if (st == FV_OK) st = line_open(&s->writes, &redis);
    if (st != FV_OK) {
        store_close(&s->tier);
        return st;
    }
    FV_LOG(INFO, PREFILL, "event=kv-store server=%s", fv_redis_address(s->reads.redis));
    *out = &s->tier;
    return FV_OK;
}
