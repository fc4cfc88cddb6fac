/* Frees memory of the pool that was not needed for a while: spare extents, and slabs whose pages are all
 * free.
 *
 * Frees only as much as the free lists held all the time since the last call, so a steady load does not
 * lose memory that it uses. One thread at a time. */
#include <math.h>
#include <stdlib.h>

#include "model/net/kv_internal.h"

static const double trim_s = 1e-3 * FV_KV_TRIM_MS;

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return x < y ? -1 : x > y;
}

/* Returns the index of the first free page at this address or after; the list is sorted. */
static int32_t page_from(const fv_kv_pool *p, uintptr_t address) {
    int32_t low = 0, high = p->n_free;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if ((uintptr_t)p->free_page[middle] < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Frees a slab if all of its pages are free. */
static bool free_slab(fv_kv_pool *p, int32_t i) {
    uintptr_t base = (uintptr_t)p->slab[i].data;
    int32_t first = page_from(p, base), after = page_from(p, base + p->slab[i].bytes);
    if (after - first < FV_KV_SLAB_PAGES) return false;
    memmove(&p->free_page[first], &p->free_page[after],
            (size_t)(p->n_free - after) * sizeof *p->free_page);
    p->n_free -= FV_KV_SLAB_PAGES;
    p->cap_free -= FV_KV_SLAB_PAGES;
    p->memory -= p->slab[i].bytes;
    fv_buf_free(&p->slab[i]);
    p->slab[i] = p->slab[--p->n_slab];
    return true;
}

static void free_slabs(fv_kv_pool *p) {
    int32_t most = p->free_least / FV_KV_SLAB_PAGES;
    if (most == 0) return;
    qsort(p->free_page, (size_t)p->n_free, sizeof *p->free_page, by_address);
    for (int32_t i = p->n_slab - 1; i >= 0 && most > 0; i--) most -= free_slab(p, i);
}

double fv_kv_pool_trim(fv_kv_pool *p, double now_s, size_t *freed) {
    *freed = 0;
    if (now_s - p->looked_s >= trim_s) {
        size_t before = p->memory;
        fv_kv_pool_spare_free(p, p->spare_least);
        free_slabs(p);
        *freed = before - p->memory;
        p->spare_least = p->n_spare;
        p->free_least = p->n_free;
        p->looked_s = now_s;
    }
    bool more = p->n_spare > 0 || p->n_free >= FV_KV_SLAB_PAGES;
    return more ? trim_s - (now_s - p->looked_s) : HUGE_VAL;
}
