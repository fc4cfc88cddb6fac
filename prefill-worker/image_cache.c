/* A short list, most recently used first: a cache of this size holds tens of pictures, whose hashes
 * are compared in less time than one of them takes to arrive. */
#include "prefill-worker/image_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    void *image; /* [n] owned */
    size_t n;
    fv_buf rows; /* owned */
} entry;

struct fv_image_cache {
    entry *first; /* most recently used */
    size_t bytes, bytes_max;
    uint64_t hits, misses;
};

fv_status fv_image_cache_open(size_t bytes_max, fv_image_cache **out) {
    fv_image_cache *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for the cache of pictures");
    c->bytes_max = bytes_max;
    *out = c;
    return FV_OK;
}

static size_t entry_bytes(const entry *e) { return e->n + e->rows.bytes; }

static void entry_free(entry *e) {
    fv_buf_free(&e->rows);
    free(e->image);
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

/* Takes the entry out of the list; NULL when it is not there. */
static entry *take(fv_image_cache *c, uint64_t hash, const void *image, size_t n) {
    for (entry **at = &c->first; *at; at = &(*at)->next) {
        entry *e = *at;
        if (e->hash != hash || e->n != n || memcmp(e->image, image, n) != 0) continue;
        *at = e->next;
        return e;
    }
    return NULL;
}

static void push(fv_image_cache *c, entry *e) {
    e->next = c->first;
    c->first = e;
}

const fv_buf *fv_image_cache_get(fv_image_cache *c, const void *image, size_t n) {
    entry *e = take(c, XXH3_64bits(image, n), image, n);
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
    c->bytes -= entry_bytes(last);
    entry_free(last);
    *at = NULL;
}

/* Takes the rows on success. */
static entry *entry_new(const void *image, size_t n, fv_buf *rows) {
    entry *e = calloc(1, sizeof *e);
    if (e) e->image = malloc(n + !n);
    if (!e || !e->image) {
        free(e);
        return NULL;
    }
    memcpy(e->image, image, n);
    e->n = n;
    e->hash = XXH3_64bits(image, n);
    e->rows = *rows;
    *rows = (fv_buf){0};
    return e;
}

void fv_image_cache_put(fv_image_cache *c, const void *image, size_t n, fv_buf *rows) {
    size_t bytes = n + rows->bytes;
    entry *e = NULL;
    entry *old = take(c, XXH3_64bits(image, n), image, n);
    if (old) {
        c->bytes -= entry_bytes(old);
        entry_free(old);
    }
    if (bytes <= c->bytes_max) {
        while (c->bytes > c->bytes_max - bytes) drop_last(c);
        e = entry_new(image, n, rows);
    }
    fv_buf_free(rows); /* empty when it was taken */
    if (!e) return;
    c->bytes += bytes;
    push(c, e);
}

fv_image_cache_counters fv_image_cache_count(const fv_image_cache *c) {
    return (fv_image_cache_counters){.hits = c->hits, .misses = c->misses, .bytes = c->bytes};
}
