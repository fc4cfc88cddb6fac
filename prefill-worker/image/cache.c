/* Keeps a short list, most recently used first: a cache of this size holds tens of images, and comparing
 * their hashes takes less time than receiving one of them. */
#include "prefill-worker/image/cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    char *block; /* owned: what the key points to */
    fv_image_key key;
    fv_image_rows rows; /* owned */
} entry;

struct fv_image_cache {
    entry *first; /* most recently used */
    size_t bytes, bytes_max;
    uint64_t hits, misses;
};

fv_status fv_image_cache_open(size_t bytes_max, fv_image_cache **out) {
    fv_image_cache *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for the image cache");
    c->bytes_max = bytes_max;
    *out = c;
    return FV_OK;
}

void fv_image_rows_free(fv_image_rows *r) {
    fv_buf_free(&r->rows);
    free(r->source);
    *r = (fv_image_rows){0};
}

static size_t bytes_of(const fv_image_key *key, const fv_image_rows *r) {
    size_t source = r->source ? (size_t)r->n * sizeof *r->source : 0;
    return key->n + strlen(key->condense) + r->rows.bytes + source;
}

static uint64_t hash_of(const fv_image_key *key) {
    return XXH3_64bits_withSeed(key->image, key->n,
                                XXH3_64bits(key->condense, strlen(key->condense)));
}

static bool same_key(const fv_image_key *a, const fv_image_key *b) {
    return a->n == b->n && strcmp(a->condense, b->condense) == 0 &&
           memcmp(a->image, b->image, a->n) == 0;
}

static void entry_free(entry *e) {
    fv_image_rows_free(&e->rows);
    free(e->block);
    free(e);
}

void fv_image_cache_close(fv_image_cache *c) {
    if (!c) return;
    for (entry *e = c->first, *next; e; e = next) {
        next = e->next;
        entry_free(e);
    }
    free(c);
}

/* Takes the entry out of the list; NULL if there is none. */
static entry *take(fv_image_cache *c, const fv_image_key *key) {
    uint64_t hash = hash_of(key);
    for (entry **at = &c->first; *at; at = &(*at)->next) {
        entry *e = *at;
        if (e->hash != hash || !same_key(&e->key, key)) continue;
        *at = e->next;
        return e;
    }
    return NULL;
}

static void push(fv_image_cache *c, entry *e) {
    e->next = c->first;
    c->first = e;
}

const fv_image_rows *fv_image_cache_get(fv_image_cache *c, const fv_image_key *key) {
    entry *e = take(c, key);
    if (!e) {
        c->misses++;
        return NULL;
    }
    c->hits++;
    push(c, e);
    return &e->rows;
}

static void drop_last(fv_image_cache *c) {
    entry **at = &c->first, *last = NULL;
    for (entry **next = at; *next; next = &(*next)->next) {
        at = next;
        last = *next;
    }
    if (!last) return;
    c->bytes -= bytes_of(&last->key, &last->rows);
    entry_free(last);
    *at = NULL;
}

/* Takes the rows on success. */
static entry *entry_new(const fv_image_key *key, fv_image_rows *rows) {
    size_t n_text = strlen(key->condense) + 1;
    entry *e = calloc(1, sizeof *e);
    char *block = malloc(key->n + n_text);
    if (!e || !block) {
        free(block);
        free(e);
        return NULL;
    }
    memcpy(block, key->image, key->n);
    memcpy(block + key->n, key->condense, n_text);
    e->block = block;
    e->key = (fv_image_key){block, key->n, block + key->n};
    e->hash = hash_of(key);
    e->rows = *rows;
    *rows = (fv_image_rows){0};
    return e;
}

void fv_image_cache_put(fv_image_cache *c, const fv_image_key *key, fv_image_rows *rows) {
    size_t bytes = bytes_of(key, rows);
    entry *e = NULL, *old = take(c, key);
    if (old) {
        c->bytes -= bytes_of(&old->key, &old->rows);
        entry_free(old);
    }
    if (bytes <= c->bytes_max) {
        while (c->bytes > c->bytes_max - bytes) drop_last(c);
        e = entry_new(key, rows);
    }
    fv_image_rows_free(rows); /* empty if they were taken */
    if (!e) return;
    c->bytes += bytes;
    push(c, e);
}

fv_image_cache_counters fv_image_cache_count(const fv_image_cache *c) {
    return (fv_image_cache_counters){.hits = c->hits, .misses = c->misses, .bytes = c->bytes};
}
