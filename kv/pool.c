/* Allocates the memory of stores, keeps the limit, and counts what each owner holds. One thread at a
 * time. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "kv/account.h"

enum { SLAB_PAGES = 256 }; /* with pages of 16 KiB a slab has 4 MiB and can use huge pages */

struct fv_kv_pool {
    fv_device *device;
    fv_kv_shape shape;
    size_t bytes_max, bytes_used;
    size_t peak;   /* highest bytes_used */
    size_t memory; /* slabs, spare buffers, buffers in use, and tables of packed layers */
    fv_buf *spare; /* free list of buffers, least recently used first */
    int32_t n_spare;
    size_t cap_spare;
    fv_buf *slab;
    int32_t n_slab;
    void **free_page; /* stack of free pages */
    int32_t n_free, cap_free;
    /* Fewest entries of the two lists since the last trim, and when that was. */
    int32_t spare_least, free_least;
    double trimmed_s;
    fv_kv_account *accounts, *idle; /* those that somebody uses, and the others */
    size_t bytes_idle;              /* of the others */
    void (*reclaim)(void *user, size_t bytes);
    void *reclaim_user;
    fv_buf staging; /* pinned; small results are copied here from the device */
};

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
    assert(p->bytes_used == 0 && !p->accounts && !p->idle);
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
    for (const fv_kv_account *a = p->accounts; a; a = a->next)
        if (strcmp(a->owner, owner) == 0) bytes += a->held;
    return bytes;
}

size_t fv_kv_pool_idle(const fv_kv_pool *p) { return p->bytes_idle; }

size_t fv_kv_pool_memory(const fv_kv_pool *p) { return p->memory; }

const fv_kv_shape *fv_kv_pool_shape(const fv_kv_pool *p) { return &p->shape; }

void fv_kv_pool_on_full(fv_kv_pool *p, void (*reclaim)(void *user, size_t bytes), void *user) {
    p->reclaim = reclaim;
    p->reclaim_user = user;
}

fv_status fv_kv_staging(fv_kv_pool *p, size_t bytes, void **out) {
    if (bytes > p->staging.bytes) {
        fv_buf_free(&p->staging);
        FV_TRY(fv_buf_alloc(p->device, 2 * bytes, FV_BUF_PINNED, &p->staging));
    }
    *out = p->staging.data;
    return FV_OK;
}

/* ---- accounts ---------------------------------------------------------------------------- */

static void link_account(fv_kv_account *a, fv_kv_account **list) {
    a->next = *list;
    a->link = list;
    if (a->next) a->next->link = &a->next;
    *list = a;
}

static void unlink_account(fv_kv_account *a) {
    *a->link = a->next;
    if (a->next) a->next->link = a->link;
}

void fv_kv_account_open(fv_kv_account *a, fv_kv_pool *pool) {
    *a = (fv_kv_account){.pool = pool, .shape = &pool->shape, .device = pool->device, .owner = ""};
    link_account(a, &pool->accounts);
}

void fv_kv_account_close(fv_kv_account *a) {
    fv_kv_account_release(a);
    assert(a->held == 0);
    unlink_account(a);
}

/* Returns bytes to the pool. */
static void settle(fv_kv_account *a, size_t bytes) {
    a->held -= bytes;
    a->pool->bytes_used -= bytes;
    if (a->idle) a->pool->bytes_idle -= bytes;
}

void fv_kv_account_move(fv_kv_account *from, fv_kv_account *to, size_t bytes) {
    assert(from->pool == to->pool && bytes <= from->held - from->reserved && !to->idle);
    from->held -= bytes;
    to->held += bytes;
}

void fv_kv_account_set_idle(fv_kv_account *a, bool idle) {
    if (a->idle == idle) return;
    assert(a->reserved == 0);
    a->idle = idle;
    unlink_account(a);
    link_account(a, idle ? &a->pool->idle : &a->pool->accounts); /* no caller goes over idle ones */
    a->pool->bytes_idle = idle ? a->pool->bytes_idle + a->held : a->pool->bytes_idle - a->held;
}

/* By how many bytes the limit would be exceeded. */
static size_t lacking(const fv_kv_pool *p, size_t bytes) {
    size_t left = p->bytes_max - p->bytes_used;
    return p->bytes_max && bytes > left ? bytes - left : 0;
}

/* Nothing is given up for a request that would not fit even then. */
fv_status fv_kv_account_reserve(fv_kv_account *a, size_t bytes) {
    fv_kv_pool *p = a->pool;
    size_t lack = lacking(p, bytes);
    assert(!a->idle || bytes == 0);
    if (lack > 0 && p->reclaim && lack <= p->bytes_idle) p->reclaim(p->reclaim_user, lack);
    if (lacking(p, bytes) > 0)
        return FV_FAIL(FV_EBUSY,
                       "the KV pool is full: %zu of %zu bytes are held and %zu more are needed; "
                       "raise --kv-bytes or shorten the prompt",
                       p->bytes_used, p->bytes_max, bytes);
    p->bytes_used += bytes;
    if (p->bytes_used > p->peak) p->peak = p->bytes_used;
    a->held += bytes;
    a->reserved += bytes;
    return FV_OK;
}

void fv_kv_account_release(fv_kv_account *a) {
    settle(a, a->reserved);
    a->reserved = 0;
}

/* Charges bytes, reserved ones first. *reserved: how many of these were used. */
static fv_status charge(fv_kv_account *a, size_t bytes, size_t *reserved) {
    *reserved = bytes < a->reserved ? bytes : a->reserved;
    FV_TRY(fv_kv_account_reserve(a, bytes - *reserved));
    a->reserved -= bytes;
    return FV_OK;
}

static void charge_back(fv_kv_account *a, size_t bytes, size_t reserved) {
    settle(a, bytes - reserved);
    a->reserved += reserved;
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* Freed buffers are kept for reuse, because memory that was touched before has no page faults, which
 * take longer than the copy into it. Sizes follow from image sizes, so the same sizes come again. Spare
 * buffers are freed when the pool's memory would exceed the highest use so far, and when they were not
 * needed for a while (fv_kv_pool_trim). */

/* Frees the first n spare buffers, which were not used for the longest time. */
static void free_spare(fv_kv_pool *p, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        p->memory -= p->spare[i].bytes;
        fv_buf_free(&p->spare[i]);
    }
    p->n_spare -= n;
    least(&p->spare_least, p->n_spare);
    if (p->n_spare) memmove(p->spare, p->spare + n, (size_t)p->n_spare * sizeof *p->spare);
}

/* Frees spare buffers until `bytes` more do not exceed the highest use. */
static void make_room(fv_kv_pool *p, size_t bytes) {
    while (p->n_spare > 0 && p->memory + bytes > p->peak) free_spare(p, 1);
}

/* Allocates a buffer for bytes that are charged. */
static fv_status buffer_take(fv_kv_pool *p, size_t bytes, fv_buf *out) {
    *out = (fv_buf){0};
    if (bytes == 0) return FV_OK;
    for (int32_t i = p->n_spare - 1; i >= 0; i--) {
        if (p->spare[i].bytes != bytes) continue;
        *out = p->spare[i];
        least(&p->spare_least, --p->n_spare);
        memmove(p->spare + i, p->spare + i + 1, (size_t)(p->n_spare - i) * sizeof *p->spare);
        return FV_OK;
    }
    make_room(p, bytes);
    fv_status st = fv_buf_alloc(p->device, bytes, FV_BUF_DEVICE, out);
    if (st != FV_OK && p->n_spare > 0) {
        free_spare(p, p->n_spare);
        st = fv_buf_alloc(p->device, bytes, FV_BUF_DEVICE, out);
    }
    if (st == FV_OK) p->memory += bytes;
    return st;
}

fv_status fv_kv_take(fv_kv_account *a, size_t bytes, fv_buf *out) {
    size_t reserved;
    FV_TRY(charge(a, bytes, &reserved));
    fv_status st = buffer_take(a->pool, bytes, out);
    if (st != FV_OK) charge_back(a, bytes, reserved);
    return st;
}

fv_status fv_kv_take_for(fv_kv_account *a, const fv_buf *old, size_t bytes, fv_buf *out) {
    if (bytes > old->bytes) return fv_kv_take(a, bytes, out);
    FV_TRY(buffer_take(a->pool, bytes, out));
    a->pool->bytes_used += bytes; /* above the limit, perhaps, until the old buffer is given back */
    a->held += bytes;
    return FV_OK;
}

void fv_kv_give(fv_kv_account *a, fv_buf *buf) {
    fv_kv_pool *p = a->pool;
    if (buf->bytes == 0) return;
    settle(a, buf->bytes);
    if (fv_grow(&p->spare, &p->cap_spare, (size_t)p->n_spare + 1, sizeof *p->spare) != FV_OK) {
        p->memory -= buf->bytes;
        fv_buf_free(buf);
        return;
    }
    p->spare[p->n_spare++] = *buf;
    *buf = (fv_buf){0};
}

fv_status fv_kv_charge_tables(fv_kv_account *a, size_t bytes, size_t *charged) {
    fv_kv_pool *p = a->pool;
    size_t reserved;
    if (bytes > *charged) {
        FV_TRY(charge(a, bytes - *charged, &reserved));
        make_room(p, bytes - *charged);
        p->memory += bytes - *charged;
    } else {
        settle(a, *charged - bytes);
        p->memory -= *charged - bytes;
    }
    *charged = bytes;
    return FV_OK;
}

/* ---- pages ------------------------------------------------------------------------------- */

static fv_status add_slab(fv_kv_pool *p) {
    int32_t pages = p->cap_free + SLAB_PAGES;
    fv_buf *slab = realloc(p->slab, (size_t)(p->n_slab + 1) * sizeof *slab);
    if (!slab) return FV_FAIL(FV_ENOMEM, "out of memory for KV pages");
    p->slab = slab;
    void **list = realloc(p->free_page, (size_t)pages * sizeof *list);
    if (!list) return FV_FAIL(FV_ENOMEM, "out of memory for KV pages");
    p->free_page = list;
    size_t bytes = fv_kv_page_bytes(&p->shape);
    FV_TRY(fv_buf_alloc(p->device, SLAB_PAGES * bytes, FV_BUF_DEVICE, &p->slab[p->n_slab]));
    p->memory += SLAB_PAGES * bytes;
    char *base = p->slab[p->n_slab++].data;
    for (int32_t i = 0; i < SLAB_PAGES; i++, base += bytes) p->free_page[p->n_free++] = base;
    p->cap_free = pages;
    return FV_OK;
}

fv_status fv_kv_take_page(fv_kv_account *a, void **out) {
    fv_kv_pool *p = a->pool;
    size_t bytes = fv_kv_page_bytes(&p->shape), reserved;
    FV_TRY(charge(a, bytes, &reserved));
    fv_status st = p->n_free > 0 ? FV_OK : add_slab(p);
    if (st != FV_OK) {
        charge_back(a, bytes, reserved);
        return st;
    }
    *out = p->free_page[--p->n_free];
    least(&p->free_least, p->n_free);
    return FV_OK;
}

void fv_kv_give_page(fv_kv_account *a, void *page) {
    fv_kv_pool *p = a->pool;
    p->free_page[p->n_free++] = page;
    settle(a, fv_kv_page_bytes(&p->shape));
}

/* ---- memory that was not needed for a while ----------------------------------------------- */

/* Only as much is freed as the free lists held all the time since the last call, so a steady load does
 * not lose memory that it uses. */

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
    if (after - first < SLAB_PAGES) return false;
    memmove(&p->free_page[first], &p->free_page[after],
            (size_t)(p->n_free - after) * sizeof *p->free_page);
    p->n_free -= SLAB_PAGES;
    p->cap_free -= SLAB_PAGES;
    p->memory -= p->slab[i].bytes;
    fv_buf_free(&p->slab[i]);
    p->slab[i] = p->slab[--p->n_slab];
    return true;
}

static void free_slabs(fv_kv_pool *p) {
    int32_t most = p->free_least / SLAB_PAGES;
    if (most == 0) return;
    qsort(p->free_page, (size_t)p->n_free, sizeof *p->free_page, by_address);
    for (int32_t i = p->n_slab - 1; i >= 0 && most > 0; i--) most -= free_slab(p, i);
}

double fv_kv_pool_trim(fv_kv_pool *p, double now_s, size_t *freed) {
    *freed = 0;
    if (now_s - p->trimmed_s >= trim_s) {
        size_t before = p->memory;
        free_spare(p, p->spare_least);
        free_slabs(p);
        *freed = before - p->memory;
        p->spare_least = p->n_spare;
        p->free_least = p->n_free;
        p->trimmed_s = now_s;
    }
    bool more = p->n_spare > 0 || p->n_free >= SLAB_PAGES;
    return more ? trim_s - (now_s - p->trimmed_s) : HUGE_VAL;
}
