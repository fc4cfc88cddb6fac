/* Allocates a store's memory: pages for text tokens, extents for visual tokens, and the limit on both.
 * One thread at a time. */
#include "common/grow.h"
#include "model/net/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/kv_internal.h"

static void least(int32_t *so_far, int32_t now) {
    if (now < *so_far) *so_far = now;
}

/* ---- pool ------------------------------------------------------------------------------ */

fv_status fv_kv_pool_open(fv_device *dev, const fv_kv_shape *shape, size_t bytes_max,
                          fv_kv_pool **out) {
    fv_kv_pool *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a KV pool");
    *p = (fv_kv_pool){.device = dev, .shape = *shape, .bytes_max = bytes_max};
    *out = p;
    return FV_OK;
}

void fv_kv_pool_close(fv_kv_pool *p) {
    if (!p) return;
    assert(p->bytes_used == 0 && !p->stores);
    for (int32_t i = 0; i < p->n_slab; i++) fv_buf_free(&p->slab[i]);
    for (int32_t i = 0; i < p->n_spare; i++) fv_buf_free(&p->spare[i]);
    fv_buf_free(&p->staging);
    free(p->spare);
    free(p->slab);
    free(p->free_page);
    free(p);
}

size_t fv_kv_pool_used(const fv_kv_pool *p) { return p->bytes_used; }

size_t fv_kv_pool_owned(const fv_kv_pool *p, const char *owner) {
    size_t bytes = 0;
    for (const fv_kv *kv = p->stores; kv; kv = kv->next)
        if (strcmp(kv->owner, owner) == 0) bytes += fv_kv_bytes_held(kv);
    return bytes;
}

size_t fv_kv_pool_memory(const fv_kv_pool *p) { return p->memory; }

const fv_kv_shape *fv_kv_pool_shape(const fv_kv_pool *p) { return &p->shape; }

fv_status fv_kv_pool_charge(fv_kv_pool *p, size_t bytes) {
    if (p->bytes_max && bytes > p->bytes_max - p->bytes_used)
        return FV_FAIL(FV_EBUSY,
                       "the KV pool is full: %zu of %zu bytes are held and %zu more are needed; "
                       "raise --kv-bytes or shorten the prompt",
                       p->bytes_used, p->bytes_max, bytes);
    p->bytes_used += bytes;
    if (p->bytes_used > p->peak) p->peak = p->bytes_used;
    return FV_OK;
}

fv_status fv_kv_pool_on_host(fv_kv_pool *p, size_t bytes, void **out) {
    if (bytes > p->staging.bytes) {
        fv_buf_free(&p->staging);
        FV_TRY(fv_buf_alloc(p->device, 2 * bytes, FV_BUF_PINNED, &p->staging));
    }
    *out = p->staging.data;
    return FV_OK;
}

/* ---- extents that are used again --------------------------------------------------------- */

/* Freed extents are kept for reuse, because memory that was touched before has no page faults, which
 * take longer than the copy into it. Sizes follow from image sizes, so the same sizes come again. Spare
 * extents are freed when the pool's memory would exceed the highest use so far, and when they were not
 * needed for a while (kv_trim.c). */

void fv_kv_pool_spare_free(fv_kv_pool *p, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        p->memory -= p->spare[i].bytes;
        fv_buf_free(&p->spare[i]);
    }
    p->n_spare -= n;
    least(&p->spare_least, p->n_spare);
    if (p->n_spare) memmove(p->spare, p->spare + n, (size_t)p->n_spare * sizeof *p->spare);
}

fv_status fv_kv_pool_take(fv_kv_pool *p, size_t bytes, fv_buf *out) {
    *out = (fv_buf){0};
    if (bytes == 0) return FV_OK;
    for (int32_t i = p->n_spare - 1; i >= 0; i--) {
        if (p->spare[i].bytes != bytes) continue;
        *out = p->spare[i];
        least(&p->spare_least, --p->n_spare);
        memmove(p->spare + i, p->spare + i + 1, (size_t)(p->n_spare - i) * sizeof *p->spare);
        return FV_OK;
    }
    while (p->n_spare > 0 && p->memory + bytes > p->peak) fv_kv_pool_spare_free(p, 1);
    fv_status st = fv_buf_alloc(p->device, bytes, FV_BUF_DEVICE, out);
    if (st != FV_OK && p->n_spare > 0) {
        fv_kv_pool_spare_free(p, p->n_spare);
        st = fv_buf_alloc(p->device, bytes, FV_BUF_DEVICE, out);
    }
    if (st == FV_OK) p->memory += bytes;
    return st;
}

void fv_kv_pool_count(fv_kv_pool *p, size_t bytes) {
    while (p->n_spare > 0 && p->memory + bytes > p->peak) fv_kv_pool_spare_free(p, 1);
    p->memory += bytes;
}

void fv_kv_pool_discount(fv_kv_pool *p, size_t bytes) {
    p->bytes_used -= bytes;
    p->memory -= bytes;
}

void fv_kv_pool_give(fv_kv_pool *p, fv_buf *buf) {
    if (buf->bytes == 0) return;
    p->bytes_used -= buf->bytes;
    if (fv_grow(&p->spare, &p->cap_spare, (size_t)p->n_spare + 1, sizeof *p->spare) != FV_OK) {
        p->memory -= buf->bytes;
        fv_buf_free(buf);
        return;
    }
    p->spare[p->n_spare++] = *buf;
    *buf = (fv_buf){0};
}

/* ---- pages ------------------------------------------------------------------------------- */

static fv_status pool_grow(fv_kv_pool *p) {
    int32_t pages = p->cap_free + FV_KV_SLAB_PAGES;
    fv_buf *slab = realloc(p->slab, (size_t)(p->n_slab + 1) * sizeof *slab);
    if (!slab) return FV_FAIL(FV_ENOMEM, "out of memory for KV pages");
    p->slab = slab;
    void **list = realloc(p->free_page, (size_t)pages * sizeof *list);
    if (!list) return FV_FAIL(FV_ENOMEM, "out of memory for KV pages");
    p->free_page = list;
    size_t bytes = fv_kv_page_bytes(&p->shape);
    FV_TRY(fv_buf_alloc(p->device, FV_KV_SLAB_PAGES * bytes, FV_BUF_DEVICE, &p->slab[p->n_slab]));
    p->memory += FV_KV_SLAB_PAGES * bytes;
    char *base = p->slab[p->n_slab++].data;
    for (int32_t i = 0; i < FV_KV_SLAB_PAGES; i++, base += bytes) p->free_page[p->n_free++] = base;
    p->cap_free = pages;
    return FV_OK;
}

fv_status fv_kv_pool_page_take(fv_kv_pool *p, void **out) {
    if (p->n_free == 0) FV_TRY(pool_grow(p));
    *out = p->free_page[--p->n_free];
    least(&p->free_least, p->n_free);
    return FV_OK;
}

void fv_kv_pool_page_give(fv_kv_pool *p, void *page) {
    p->free_page[p->n_free++] = page;
    p->bytes_used -= fv_kv_page_bytes(&p->shape);
}
