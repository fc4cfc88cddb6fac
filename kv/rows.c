/* Raw rows of a store: their pages and extents, ragged lengths, and appending. Host bookkeeping only:
 * kernels write rows and the device moves them, so the same code serves a GPU. One thread at a
 * time. */
#include <assert.h>
#include <stdlib.h>

#include "kv/internal.h"

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

void fv_kv_drop_visual(fv_kv *kv, int32_t layer) {
    fv_kv_give(&kv->account, &kv->extent[layer]);
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++)
        kv->run[fv_kv_run_at(kv, layer, g, FV_SEG_VISUAL)].len = 0;
}

size_t fv_kv_extent_bytes(const fv_kv *kv, int32_t layer, const int32_t *rows) {
    const fv_kv_shape *s = kv->account.shape;
    size_t bytes = 0;
    for (int32_t g = 0; g < s->n_kv; g++)
        bytes += own_parts(kv, layer, FV_SEG_VISUAL) * (size_t)rows[g] * fv_kv_row_bytes(s);
    return bytes;
}

/* Points a head's blocks to its rows of an extent, which start at *base, and advances *base past
 * them. */
fv_status fv_kv_extent_map(fv_kv *kv, int32_t layer, int32_t head, char **base, int32_t rows) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_VISUAL),
           bytes = fv_kv_row_bytes(kv->account.shape);
    size_t part = (size_t)rows * bytes, own = own_parts(kv, layer, FV_SEG_VISUAL);
    char *k = *base, *v = *base + (own - 1) * part;
    int32_t first = fv_kv_blocks_for(kv->shared_visual);
    FV_TRY(fv_kv_blocks_grow(kv, run, first + fv_kv_blocks_for(rows)));
    for (int32_t b = 0; b < fv_kv_blocks_for(rows); b++) {
        size_t at = (size_t)b * FV_KV_BLOCK * bytes;
        kv->run[run].block[first + b] = (fv_kv_block){
            own == 2 ? k + at : reused_keys(kv, layer, head, FV_SEG_VISUAL, b), v + at};
    }
    *base += own * part;
    return FV_OK;
}

fv_status fv_kv_extent_ragged(fv_kv *kv, int32_t layer, const int32_t *rows) {
    const fv_kv_shape *s = kv->account.shape;
    assert(!kv->extent[layer].data);
    fv_buf buf;
    FV_TRY(fv_kv_take(&kv->account, fv_kv_extent_bytes(kv, layer, rows), &buf));
    kv->extent[layer] = buf;
    char *base = buf.data;
    for (int32_t g = 0; g < s->n_kv; g++)
        if (rows[g] > 0) FV_TRY(fv_kv_extent_map(kv, layer, g, &base, rows[g]));
    fv_kv_check(kv, layer);
    return FV_OK;
}

fv_status fv_kv_extent(fv_kv *kv, int32_t layer, int32_t rows) {
    int32_t each[1024];
    assert(kv->account.shape->n_kv <= 1024);
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++) each[g] = rows;
    return fv_kv_extent_ragged(kv, layer, each);
}

/* Adds one block to a head's text segment; `block` has a place for it. */
static fv_status take_text_block(fv_kv *kv, int32_t layer, int32_t head) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_TEXT);
    int32_t at = kv->state[run].n_block;
    fv_kv_block b = {NULL, NULL};
    if (kv->reused_text[layer]) {
        b.k = reused_keys(kv, layer, head, FV_SEG_TEXT, at);
        FV_TRY(fv_kv_take_page(&kv->account, &b.v));
    } else {
        FV_TRY(fv_kv_take_page(&kv->account, &b.k));
        fv_status st = fv_kv_take_page(&kv->account, &b.v);
        if (st != FV_OK) {
            fv_kv_give_page(&kv->account, b.k);
            return st;
        }
    }
    kv->run[run].block[at] = b;
    kv->state[run].n_block = at + 1;
    return FV_OK;
}

fv_status fv_kv_text_pages(fv_kv *kv, int32_t layer, int32_t head, int32_t least, int32_t most) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_TEXT);
    int32_t need = fv_kv_blocks_for(least), left = fv_kv_blocks_for(most);
    if (left < kv->shared_text) left = kv->shared_text;
    while (kv->state[run].n_block > left) {
        fv_kv_block *b = &kv->run[run].block[--kv->state[run].n_block];
        fv_kv_give_page(&kv->account, b->v);
        if (!kv->reused_text[layer]) fv_kv_give_page(&kv->account, b->k);
    }
    FV_TRY(fv_kv_blocks_grow(kv, run, need));
    while (kv->state[run].n_block < need) FV_TRY(take_text_block(kv, layer, head));
    return FV_OK;
}

fv_status fv_kv_reserve(fv_kv *kv, int32_t layer, int32_t rows) {
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++) {
        int32_t need = kv->run[fv_kv_run_at(kv, layer, g, FV_SEG_TEXT)].len + rows;
        FV_TRY(fv_kv_text_pages(kv, layer, g, need, INT32_MAX));
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
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++)
        FV_TRY(fv_kv_append_head(kv, layer, g, seg, pos, n));
    return FV_OK;
}

/* ---- from and to other memory ---------------------------------------------------------- */

int32_t fv_kv_contiguous(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                         bool value, int32_t row, int32_t end, void **at) {
    const fv_kv_block *block = kv->run[fv_kv_run_at(kv, layer, head, seg)].block;
    size_t bytes = fv_kv_row_bytes(kv->account.shape);
    if (row >= end) return 0;
    *at = fv_kv_row_of(block, row, value, bytes);
    int32_t to = (row / FV_KV_BLOCK + 1) * FV_KV_BLOCK; /* adjacent blocks count as one */
    while (to < end &&
           fv_kv_row_of(block, to, value, bytes) == (char *)*at + (size_t)(to - row) * bytes)
        to += FV_KV_BLOCK;
    return (to < end ? to : end) - row;
}

size_t fv_kv_text_bytes(const fv_kv_shape *s, int32_t rows, int32_t n_borrow) {
    size_t blocks = (size_t)s->n_kv * (size_t)fv_kv_blocks_for(rows);
    return (2 * (size_t)s->n_layer - (size_t)n_borrow) * blocks * fv_kv_page_bytes(s);
}
