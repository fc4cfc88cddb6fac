/* Keeps the pages, extents and ragged lengths of one request's keys and values. Host bookkeeping only:
 * kernels write rows and the device moves them, so the same code serves a GPU. One thread at a
 * time. */
#include "model/net/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/kv_internal.h"

/* ---- store ----------------------------------------------------------------------------- */

static fv_status take_arrays(fv_kv *kv) {
    size_t n_layer = (size_t)kv->pool->shape.n_layer,
           heads = n_layer * (size_t)kv->pool->shape.n_kv;
    fv_arena *a = &kv->arena;
    FV_TRY(FV_ARENA_NEW(a, heads * FV_N_SEG, kv->run));
    FV_TRY(FV_ARENA_NEW(a, heads * FV_N_SEG, kv->state));
    FV_TRY(FV_ARENA_NEW(a, n_layer, kv->extent));
    FV_TRY(FV_ARENA_NEW(a, heads, kv->ranked));
    FV_TRY(FV_ARENA_NEW(a, n_layer, kv->masked));
    FV_TRY(FV_ARENA_NEW(a, n_layer * FV_N_SEG, kv->packed));
    FV_TRY(FV_ARENA_NEW(a, n_layer, kv->source_layer));
    FV_TRY(FV_ARENA_NEW(a, 1, kv->sequence));
    return FV_ARENA_NEW(a, n_layer, kv->reused_text);
}

fv_status fv_kv_open(fv_kv_pool *pool, fv_kv **out) {
    fv_kv *kv = malloc(sizeof *kv);
    if (!kv) return FV_FAIL(FV_ENOMEM, "out of memory for a KV store");
    *kv =
        (fv_kv){.pool = pool, .owner = (char *)"", .column_bytes[FV_KV_POSITION] = sizeof(int32_t)};
    fv_status st = take_arrays(kv);
    if (st != FV_OK) {
        fv_arena_fini(&kv->arena);
        free(kv);
        return st;
    }
    for (int32_t l = 0; l < pool->shape.n_layer; l++) kv->source_layer[l] = l;
    kv->next = pool->stores;
    kv->link = &pool->stores;
    if (kv->next) kv->next->link = &kv->next;
    pool->stores = kv;
    *out = kv;
    return FV_OK;
}

fv_status fv_kv_set_owner(fv_kv *kv, const char *owner) {
    return fv_arena_strndup(&kv->arena, owner, strlen(owner), &kv->owner);
}

const char *fv_kv_owner(const fv_kv *kv) { return kv->owner; }

/* Frees blocks of a head's text segment past `rows` entries. */
void fv_kv_text_give(fv_kv *kv, int32_t layer, int32_t head, int32_t rows) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_TEXT);
    while (kv->state[run].n_block > fv_kv_blocks_for(rows)) {
        fv_kv_block *b = &kv->run[run].block[--kv->state[run].n_block];
        fv_kv_pool_page_give(kv->pool, b->v);
        if (!kv->reused_text[layer]) fv_kv_pool_page_give(kv->pool, b->k);
    }
}

void fv_kv_close(fv_kv *kv) {
    if (!kv) return;
    const fv_kv_shape *s = &kv->pool->shape;
    size_t n = (size_t)s->n_layer * (size_t)s->n_kv * FV_N_SEG;
    for (int32_t l = 0; l < s->n_layer; l++) {
        for (int32_t g = 0; g < s->n_kv; g++) fv_kv_text_give(kv, l, g, 0);
        fv_kv_pool_give(kv->pool, &kv->extent[l]);
    }
    for (size_t i = 0; i < n; i++) {
        free(kv->run[i].block);
        fv_kv_columns_free(&kv->state[i]);
    }
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int seg = 0; seg < FV_N_SEG; seg++) fv_kv_packed_drop(kv, l, (fv_kv_segment)seg);
    kv->pool->bytes_used -= kv->reserved;
    *kv->link = kv->next;
    if (kv->next) kv->next->link = kv->link;
    fv_arena_fini(&kv->arena);
    free(kv);
}

const fv_kv_shape *fv_kv_get_shape(const fv_kv *kv) { return &kv->pool->shape; }

fv_kv_sequence *fv_kv_get_sequence(const fv_kv *kv) { return kv->sequence; }

fv_status fv_kv_set_rope_map(fv_kv *kv, const fv_rope_map *map) {
    fv_rope_grid *grid;
    FV_TRY(FV_ARENA_NEW(&kv->arena, map->n_grid, grid));
    if (map->n_grid) memcpy(grid, map->grid, (size_t)map->n_grid * sizeof *grid);
    kv->rope_map = *map;
    kv->rope_map.grid = grid;
    return FV_OK;
}

const fv_rope_map *fv_kv_rope_map(const fv_kv *kv) { return &kv->rope_map; }

fv_kv_pool *fv_kv_get_pool(const fv_kv *kv) { return kv->pool; }

fv_device *fv_kv_get_device(const fv_kv *kv) { return kv->pool->device; }

fv_block_table *fv_kv_runs(fv_kv *kv, int32_t layer) {
    return &kv->run[fv_kv_run_at(kv, layer, 0, 0)];
}

int32_t fv_kv_len(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return kv->run[fv_kv_run_at(kv, layer, head, seg)].len;
}

int32_t fv_kv_masked(const fv_kv *kv, int32_t layer) { return kv->masked[layer]; }

int32_t fv_kv_held(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return fv_kv_len(kv, layer, head, seg) + (seg == FV_SEG_VISUAL ? kv->masked[layer] : 0);
}

fv_status fv_kv_blocks_grow(fv_kv *kv, size_t run, int32_t n_block) {
    if (n_block <= kv->state[run].cap_block) return FV_OK;
    int32_t cap = kv->state[run].cap_block * 2 > n_block ? kv->state[run].cap_block * 2 : n_block;
    fv_kv_block *block = realloc(kv->run[run].block, (size_t)cap * sizeof *block);
    if (!block) return FV_FAIL(FV_ENOMEM, "out of memory for a KV page table");
    kv->run[run].block = block;
    kv->state[run].cap_block = cap;
    return FV_OK;
}

/* ---- shared keys ----------------------------------------------------------------------- */

void fv_kv_borrow(fv_kv *kv, int32_t layer, int32_t source_layer, bool text) {
    assert(source_layer >= 0 &&
           (source_layer == layer ||
            (source_layer < layer && kv->source_layer[source_layer] == source_layer)));
    assert(!kv->extent[layer].data && !kv->run[fv_kv_run_at(kv, layer, 0, FV_SEG_TEXT)].block);
    kv->source_layer[layer] = source_layer;
    kv->reused_text[layer] = text && source_layer != layer;
}

int32_t fv_kv_source_layer(const fv_kv *kv, int32_t layer) { return kv->source_layer[layer]; }

bool fv_kv_borrows(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return seg == FV_SEG_TEXT ? kv->reused_text[layer] : kv->source_layer[layer] != layer;
}

/* Returns how many vectors a row has in the layer's own memory: 2, key and value; or 1, the value. */
static size_t own_parts(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return fv_kv_borrows(kv, layer, seg) ? 1 : 2;
}

/* Returns the keys of block b of a head in the source layer. */
static void *reused_keys(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                         int32_t b) {
    size_t run = fv_kv_run_at(kv, kv->source_layer[layer], head, seg);
    assert(b < kv->state[run].cap_block);
    return kv->run[run].block[b].k;
}

/* ---- memory ---------------------------------------------------------------------------- */

/* Charges the pool, using reserved bytes first. *reserved: how many of these were used. */
static fv_status charge(fv_kv *kv, size_t bytes, size_t *reserved) {
    *reserved = bytes < kv->reserved ? bytes : kv->reserved;
    FV_TRY(fv_kv_pool_charge(kv->pool, bytes - *reserved));
    kv->reserved -= *reserved;
    return FV_OK;
}

static void charge_back(fv_kv *kv, size_t bytes, size_t reserved) {
    kv->pool->bytes_used -= bytes - reserved;
    kv->reserved += reserved;
}

static fv_status page_take(fv_kv *kv, void **out) {
    fv_kv_pool *p = kv->pool;
    size_t reserved;
    FV_TRY(charge(kv, fv_kv_page_bytes(&p->shape), &reserved));
    fv_status st = fv_kv_pool_page_take(p, out);
    if (st != FV_OK) charge_back(kv, fv_kv_page_bytes(&p->shape), reserved);
    return st;
}

fv_status fv_kv_memory_take(fv_kv *kv, size_t bytes, fv_buf *out) {
    size_t reserved;
    FV_TRY(charge(kv, bytes, &reserved));
    fv_status st = fv_kv_pool_take(kv->pool, bytes, out);
    if (st != FV_OK) charge_back(kv, bytes, reserved);
    return st;
}

void fv_kv_memory_give(fv_kv *kv, fv_buf *buf) { fv_kv_pool_give(kv->pool, buf); }

fv_status fv_kv_tables_charge(fv_kv *kv, size_t bytes, size_t *charged) {
    size_t reserved;
    if (bytes > *charged) {
        FV_TRY(charge(kv, bytes - *charged, &reserved));
        fv_kv_pool_count(kv->pool, bytes - *charged);
    } else {
        fv_kv_pool_discount(kv->pool, *charged - bytes);
    }
    *charged = bytes;
    return FV_OK;
}

fv_kv_packed **fv_kv_packed_slot(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return &kv->packed[(size_t)layer * FV_N_SEG + seg];
}

void fv_kv_drop_visual(fv_kv *kv, int32_t layer) {
    fv_kv_pool_give(kv->pool, &kv->extent[layer]);
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++)
        kv->run[fv_kv_run_at(kv, layer, g, FV_SEG_VISUAL)].len = 0;
}

size_t fv_kv_extent_bytes(const fv_kv *kv, int32_t layer, const int32_t *rows) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t bytes = 0;
    for (int32_t g = 0; g < s->n_kv; g++)
        bytes += own_parts(kv, layer, FV_SEG_VISUAL) * (size_t)rows[g] * fv_kv_row_bytes(s);
    return bytes;
}

/* Allocates a layer's extent, in which head g holds rows[g] rows: K unless borrowed, then V, head
 * after head. */
fv_status fv_kv_extent_lay(fv_kv *kv, int32_t layer, const int32_t *rows, fv_buf *out) {
    return fv_kv_memory_take(kv, fv_kv_extent_bytes(kv, layer, rows), out);
}

/* Points a head's blocks to its entries of a slab, which start at *base, and advances *base past
 * them. */
fv_status fv_kv_extent_map(fv_kv *kv, int32_t layer, int32_t head, char **base, int32_t rows) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_VISUAL),
           bytes = fv_kv_row_bytes(&kv->pool->shape);
    size_t part = (size_t)rows * bytes, own = own_parts(kv, layer, FV_SEG_VISUAL);
    char *k = *base, *v = *base + (own - 1) * part;
    FV_TRY(fv_kv_blocks_grow(kv, run, fv_kv_blocks_for(rows)));
    for (int32_t b = 0; b < fv_kv_blocks_for(rows); b++) {
        size_t at = (size_t)b * FV_KV_BLOCK * bytes;
        kv->run[run].block[b] = (fv_kv_block){
            own == 2 ? k + at : reused_keys(kv, layer, head, FV_SEG_VISUAL, b), v + at};
    }
    *base += own * part;
    return FV_OK;
}

fv_status fv_kv_extent_ragged(fv_kv *kv, int32_t layer, const int32_t *rows) {
    const fv_kv_shape *s = &kv->pool->shape;
    assert(!kv->extent[layer].data);
    fv_buf buf;
    FV_TRY(fv_kv_extent_lay(kv, layer, rows, &buf));
    kv->extent[layer] = buf;
    char *base = buf.data;
    for (int32_t g = 0; g < s->n_kv; g++)
        if (rows[g] > 0) FV_TRY(fv_kv_extent_map(kv, layer, g, &base, rows[g]));
    fv_kv_check(kv, layer);
    return FV_OK;
}

fv_status fv_kv_extent(fv_kv *kv, int32_t layer, int32_t rows) {
    int32_t each[1024];
    assert(kv->pool->shape.n_kv <= 1024);
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++) each[g] = rows;
    return fv_kv_extent_ragged(kv, layer, each);
}

/* Adds one block to a head's text segment; `block` has a place for it. */
fv_status fv_kv_text_take(fv_kv *kv, int32_t layer, int32_t head) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_TEXT);
    int32_t at = kv->state[run].n_block;
    fv_kv_block b = {NULL, NULL};
    if (kv->reused_text[layer]) {
        b.k = reused_keys(kv, layer, head, FV_SEG_TEXT, at);
        FV_TRY(page_take(kv, &b.v));
    } else {
        FV_TRY(page_take(kv, &b.k));
        fv_status st = page_take(kv, &b.v);
        if (st != FV_OK) {
            fv_kv_pool_page_give(kv->pool, b.k);
            return st;
        }
    }
    kv->run[run].block[at] = b;
    kv->state[run].n_block = at + 1;
    return FV_OK;
}

fv_status fv_kv_reserve(fv_kv *kv, int32_t layer, int32_t rows) {
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++) {
        size_t run = fv_kv_run_at(kv, layer, g, FV_SEG_TEXT);
        int32_t need = fv_kv_blocks_for(kv->run[run].len + rows);
        FV_TRY(fv_kv_blocks_grow(kv, run, need));
        while (kv->state[run].n_block < need) FV_TRY(fv_kv_text_take(kv, layer, g));
    }
    fv_kv_check(kv, layer);
    return FV_OK;
}

fv_status fv_kv_append_head(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                            const int32_t *pos, int32_t n) {
    if (n == 0) return FV_OK;
    size_t run = fv_kv_run_at(kv, layer, head, seg);
    fv_kv_run_state *st = &kv->state[run];
    int32_t len = kv->run[run].len;
    FV_TRY(fv_kv_columns_grow(kv, st, len + n));
    fv_kv_columns_append(kv, st, len, pos, n);
    kv->run[run].len = len + n;
    fv_kv_check(kv, layer);
    return FV_OK;
}

fv_status fv_kv_append(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *pos, int32_t n) {
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++)
        FV_TRY(fv_kv_append_head(kv, layer, g, seg, pos, n));
    return FV_OK;
}

/* ---- from and to other memory ---------------------------------------------------------- */

int32_t fv_kv_contiguous(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                         bool value, int32_t row, int32_t end, void **at) {
    const fv_kv_block *block = kv->run[fv_kv_run_at(kv, layer, head, seg)].block;
    size_t bytes = fv_kv_row_bytes(&kv->pool->shape);
    if (row >= end) return 0;
    *at = fv_kv_row_of(block, row, value, bytes);
    int32_t to = (row / FV_KV_BLOCK + 1) * FV_KV_BLOCK; /* adjacent blocks count as one */
    while (to < end &&
           fv_kv_row_of(block, to, value, bytes) == (char *)*at + (size_t)(to - row) * bytes)
        to += FV_KV_BLOCK;
    return (to < end ? to : end) - row;
}

fv_status fv_kv_reserve_bytes(fv_kv *kv, size_t bytes) {
    FV_TRY(fv_kv_pool_charge(kv->pool, bytes));
    kv->reserved += bytes;
    return FV_OK;
}

size_t fv_kv_release_unused(fv_kv *kv, int32_t rows) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t before = kv->pool->bytes_used;
    kv->pool->bytes_used -= kv->reserved;
    kv->reserved = 0;
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int32_t g = 0; g < s->n_kv; g++)
            fv_kv_text_give(kv, l, g, fv_kv_len(kv, l, g, FV_SEG_TEXT) + rows);
    fv_kv_check(kv, -1);
    return before - kv->pool->bytes_used;
}

size_t fv_kv_text_bytes(const fv_kv_shape *s, int32_t rows, int32_t n_borrow) {
    size_t blocks = (size_t)s->n_kv * (size_t)fv_kv_blocks_for(rows);
    return (2 * (size_t)s->n_layer - (size_t)n_borrow) * blocks * fv_kv_page_bytes(s);
}

size_t fv_kv_bytes(const fv_kv *kv, fv_kv_segment seg) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t bytes = 0;
    for (int32_t l = 0; l < s->n_layer; l++) {
        bytes += fv_kv_packed_bytes(kv, l, seg);
        if (seg == FV_SEG_VISUAL) bytes += kv->extent[l].bytes;
        for (int32_t g = 0; seg == FV_SEG_TEXT && g < s->n_kv; g++)
            bytes += own_parts(kv, l, seg) * (size_t)fv_kv_len(kv, l, g, seg) * fv_kv_row_bytes(s);
    }
    return bytes;
}

size_t fv_kv_bytes_held(const fv_kv *kv) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t bytes = kv->reserved + fv_kv_packed_tables(kv);
    for (int32_t l = 0; l < s->n_layer; l++) {
        size_t pages = 0;
        for (int32_t g = 0; g < s->n_kv; g++)
            pages += (size_t)kv->state[fv_kv_run_at(kv, l, g, FV_SEG_TEXT)].n_block;
        for (int seg = 0; seg < FV_N_SEG; seg++)
            bytes += fv_kv_packed_bytes(kv, l, (fv_kv_segment)seg);
        bytes += kv->extent[l].bytes + own_parts(kv, l, FV_SEG_TEXT) * pages * fv_kv_page_bytes(s);
    }
    return bytes;
}
