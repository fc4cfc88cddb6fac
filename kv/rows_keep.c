/* Keeps, reorders and drops raw rows of a store: selection, rank order, annealing, eviction. One thread
 * at a time. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"

enum {
    CHAIN = 16
}; /* rows that a thread of a device moves one after the other, where the order is free */

/* Moves row idx[j] of src to row j of dst, at the next fv_kv_settle: its value, and its key unless that is borrowed. dst
 * may be src if idx is ascending: its rows are a chain, because a row's new place may be another one's old place. */
static fv_status rows_move(fv_kv *kv, const fv_kv_block *dst, const fv_kv_block *src,
                           const int32_t *idx, int32_t n, bool borrowed) {
    size_t bytes = fv_kv_row_bytes(kv->account.shape);
    for (int value = borrowed; value < 2; value++) {
        for (int32_t j = 0; j < n; j++) {
            if (dst == src && idx[j] == j) continue;
            FV_TRY(fv_kv_moves_add(kv, fv_kv_row_of(dst, j, value, bytes),
                                   fv_kv_row_of(src, idx[j], value, bytes)));
            if (dst != src && j % CHAIN == CHAIN - 1) FV_TRY(fv_kv_moves_end(kv));
        }
        FV_TRY(fv_kv_moves_end(kv));
    }
    return FV_OK;
}

static void columns_keep(fv_kv *kv, size_t run, const int32_t *idx, int32_t n) {
    for (int32_t j = 0; j < n; j++) fv_kv_columns_move(kv, &kv->state[run], j, idx[j]);
    kv->run[run].len = n;
}

/* Keeps rows with repeated indices: rows are first compacted, each once, then spread from the end,
 * so that no row is overwritten before it is read. */
static fv_status rows_spread(fv_kv *kv, size_t run, const int32_t *idx, int32_t n, bool borrowed) {
    const fv_kv_block *block = kv->run[run].block;
    size_t bytes = fv_kv_row_bytes(kv->account.shape);
    int32_t once = -1;
    for (int32_t j = 0; j < n; j++) once += j == 0 || idx[j] != idx[j - 1];
    for (int value = borrowed; value < 2; value++) {
        for (int32_t j = n - 1, from = once; j > from; j--) {
            FV_TRY(fv_kv_moves_add(kv, fv_kv_row_of(block, j, value, bytes),
                                   fv_kv_row_of(block, from, value, bytes)));
            from -= j > 0 && idx[j] != idx[j - 1];
        }
        FV_TRY(fv_kv_moves_end(kv));
    }
    for (int32_t j = n - 1, from = once; j > from; j--) {
        fv_kv_columns_move(kv, &kv->state[run], j, from);
        from -= j > 0 && idx[j] != idx[j - 1];
    }
    kv->run[run].len = n;
    return FV_OK;
}

/* Whether the rows that other stores use stay where they are. */
static inline bool leaves_shared(const fv_kv *kv, const int32_t *idx, int32_t n) {
    int32_t fixed = fv_kv_shared_rows(kv, FV_SEG_TEXT), j = 0;
    while (j < fixed && j < n && idx[j] == j) j++;
    return j == fixed;
}

static fv_status keep_text_head(fv_kv *kv, int32_t layer, int32_t head, const int32_t *idx,
                                int32_t n) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_TEXT);
    int32_t n_once = 0, *once = malloc((size_t)(n ? n : 1) * sizeof *once);
    if (!once) return FV_FAIL(FV_ENOMEM, "out of memory for %d KV rows", n);
    for (int32_t j = 0; j < n; j++)
        if (j == 0 || idx[j] != idx[j - 1]) once[n_once++] = idx[j];
    assert(leaves_shared(kv, idx, n));
    fv_kv_block *block = kv->run[run].block;
    fv_status st = rows_move(kv, block, block, once, n_once, kv->reused_text[layer]);
    if (st == FV_OK) columns_keep(kv, run, once, n_once);
    free(once);
    if (st != FV_OK || n_once == n) return st;
    FV_TRY(fv_kv_settle(kv)); /* what is spread has been compacted */
    FV_TRY(fv_kv_text_pages(kv, layer, head, n, INT32_MAX));
    FV_TRY(fv_kv_columns_grow(kv, &kv->state[run], n));
    return rows_spread(kv, run, idx, n, kv->reused_text[layer]);
}

/* Keeps text rows; pages stay for those left, or for `room` rows if that is more. */
static fv_status keep_text(fv_kv *kv, int32_t layer, const int32_t *const *idx, const int32_t *n,
                           int32_t room) {
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++) {
        fv_status st = keep_text_head(kv, layer, g, idx[g], n[g]);
        if (st == FV_OK) continue;
        fv_kv_moves_forget(kv);
        return st;
    }
    FV_TRY(fv_kv_settle(kv));
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++)
        (void)fv_kv_text_pages(kv, layer, g, 0, n[g] > room ? n[g] : room);
    return FV_OK;
}

fv_status fv_kv_drop_text(fv_kv *kv, int32_t layer, int32_t row0, int32_t n, int32_t room) {
    int32_t n_kv = kv->account.shape->n_kv, left[1024], *same;
    const int32_t *idx[1024];
    assert(n_kv <= 1024);
    for (int32_t g = 0; g < n_kv; g++) {
        int32_t len = fv_kv_len(kv, layer, g, FV_SEG_TEXT);
        left[g] = len > row0 + n ? len - n : len < row0 ? len : row0;
    }
    same = malloc((size_t)(left[0] + 1) * sizeof *same); /* all heads hold the same rows */
    if (!same) return FV_FAIL(FV_ENOMEM, "out of memory for KV rows");
    for (int32_t j = 0; j < left[0]; j++) same[j] = j < row0 ? j : n + j;
    for (int32_t g = 0; g < n_kv; g++) idx[g] = same;
    fv_status st = keep_text(kv, layer, idx, left, room);
    free(same);
    return st;
}

static fv_status keep_visual(fv_kv *kv, int32_t layer, const int32_t *const *idx,
                             const int32_t *n) {
    const fv_kv_shape *s = kv->account.shape;
    fv_buf buf;
    assert(kv->masked[layer] == 0 && !kv->share);
    FV_TRY(
        fv_kv_take_for(&kv->account, &kv->extent[layer], fv_kv_extent_bytes(kv, layer, n), &buf));
    char *base = buf.data;
    for (int32_t g = 0; g < s->n_kv; g++) {
        size_t run = fv_kv_run_at(kv, layer, g, FV_SEG_VISUAL);
        fv_kv_block *old = kv->run[run].block;
        kv->run[run].block = NULL;
        kv->state[run].cap_block = 0;
        fv_status st = fv_kv_extent_map(kv, layer, g, &base, n[g]);
        if (st == FV_OK)
            st = rows_move(kv, kv->run[run].block, old, idx[g], n[g],
                           kv->source_layer[layer] != layer);
        if (st == FV_OK) st = fv_kv_columns_order(kv, &kv->state[run], idx[g], n[g]);
        if (st == FV_OK) kv->run[run].len = n[g];
        free(old);
        if (st != FV_OK) { /* the request is lost; close must still work */
            kv->run[run].len = 0;
            fv_kv_moves_forget(kv);
            fv_kv_give(&kv->account, &buf);
            return st;
        }
    }
    fv_status st = fv_kv_settle(kv);
    fv_kv_give(&kv->account, &kv->extent[layer]);
    kv->extent[layer] = buf;
    return st;
}

/* Returns whether a layer is the source layer or borrows its keys in this segment. */
static bool shares_keys(const fv_kv *kv, int32_t layer, int32_t source_layer, fv_kv_segment seg) {
    return layer == source_layer ||
           (kv->source_layer[layer] == source_layer && fv_kv_borrows(kv, layer, seg));
}

/* The source layer comes first: the others point to its new keys. */
fv_status fv_kv_keep(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *const *idx,
                     const int32_t *n) {
    assert(!fv_kv_borrows(kv, layer, seg));
    for (int32_t l = layer; l < kv->account.shape->n_layer; l++)
        if (shares_keys(kv, l, layer, seg))
            FV_TRY(seg == FV_SEG_TEXT ? keep_text(kv, l, idx, n, 0) : keep_visual(kv, l, idx, n));
    fv_kv_check(kv, -1);
    return FV_OK;
}

/* ---- masked rows ----------------------------------------------------------------------- */

void fv_kv_mask(fv_kv *kv, int32_t layer, int32_t n) {
    assert(kv->masked[layer] == 0 && !kv->column_bytes[FV_KV_ACCUM]);
    assert(!*fv_kv_packed_slot(kv, layer, FV_SEG_VISUAL));
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++) {
        assert(fv_kv_len(kv, layer, g, FV_SEG_VISUAL) >= n && fv_kv_ranked(kv, layer, g) == 0);
        kv->run[fv_kv_run_at(kv, layer, g, FV_SEG_VISUAL)].len -= n;
    }
    kv->masked[layer] = n;
    fv_kv_check(kv, layer);
}

/* ---- rank order ------------------------------------------------------------------------- */

static int32_t *ranked_of(const fv_kv *kv, int32_t layer) {
    return kv->ranked + (size_t)layer * (size_t)kv->account.shape->n_kv;
}

int32_t fv_kv_ranked(const fv_kv *kv, int32_t layer, int32_t head) {
    return ranked_of(kv, layer)[head];
}

void fv_kv_set_ranked(fv_kv *kv, int32_t layer, const int32_t *rows) {
    memcpy(ranked_of(kv, layer), rows, (size_t)kv->account.shape->n_kv * sizeof *rows);
}

fv_status fv_kv_rank(fv_kv *kv, int32_t layer, const int32_t *const *order) {
    int32_t *n = ranked_of(kv, layer);
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++)
        n[g] = fv_kv_len(kv, layer, g, FV_SEG_VISUAL);
    for (int32_t l = layer + 1; l < kv->account.shape->n_layer; l++)
        if (shares_keys(kv, l, layer, FV_SEG_VISUAL)) fv_kv_set_ranked(kv, l, n);
    return fv_kv_keep(kv, layer, FV_SEG_VISUAL, order, n);
}

/* Reallocates a layer's extent at the size of the remaining rows, and those of its lazy layers. */
static fv_status extent_fit(fv_kv *kv, int32_t layer, int32_t most) {
    int32_t n_kv = kv->account.shape->n_kv, n[1024], *same = malloc((size_t)most * sizeof *same);
    const int32_t *idx[1024];
    assert(n_kv <= 1024);
    if (!same) return FV_FAIL(FV_ENOMEM, "out of memory for KV rows");
    for (int32_t j = 0; j < most; j++) same[j] = j;
    for (int32_t g = 0; g < n_kv; g++) {
        idx[g] = same;
        n[g] = fv_kv_len(kv, layer, g, FV_SEG_VISUAL);
    }
    fv_status st = fv_kv_keep(kv, layer, FV_SEG_VISUAL, idx, n);
    free(same);
    return st;
}

/* Shortens one layer. Returns the rows left; *most: rows of its longest head. */
static size_t shorten(fv_kv *kv, int32_t layer, const int32_t *n, int32_t *most) {
    size_t rows = 0;
    *most = 0;
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++) {
        size_t run = fv_kv_run_at(kv, layer, g, FV_SEG_VISUAL);
        if (n[g] < kv->run[run].len) kv->run[run].len = n[g];
        rows += (size_t)kv->run[run].len;
        if (kv->run[run].len > *most) *most = kv->run[run].len;
    }
    if (rows == 0) fv_kv_give(&kv->account, &kv->extent[layer]);
    return rows;
}

fv_status fv_kv_truncate(fv_kv *kv, int32_t layer, const int32_t *n) {
    int32_t most;
    assert(!fv_kv_borrows(kv, layer, FV_SEG_VISUAL) && !kv->share);
    size_t rows = shorten(kv, layer, n, &most), row = 2 * fv_kv_row_bytes(kv->account.shape);
    for (int32_t l = layer + 1; l < kv->account.shape->n_layer; l++)
        if (shares_keys(kv, l, layer, FV_SEG_VISUAL)) shorten(kv, l, n, &most);
    fv_kv_check(kv, -1);
    bool loose = 4 * rows * row <= 3 * kv->extent[layer].bytes;
    return rows > 0 && loose ? extent_fit(kv, layer, most) : FV_OK;
}

/* ---- evicting single rows -------------------------------------------------------------- */

static fv_status row_move(fv_kv *kv, size_t run, int32_t to, int32_t from) {
    const fv_kv_block *block = kv->run[run].block;
    size_t bytes = fv_kv_row_bytes(kv->account.shape);
    for (int value = 0; value < 2; value++) {
        FV_TRY(fv_kv_moves_add(kv, fv_kv_row_of(block, to, value, bytes),
                               fv_kv_row_of(block, from, value, bytes)));
        FV_TRY(fv_kv_moves_end(kv));
    }
    fv_kv_columns_move(kv, &kv->state[run], to, from);
    return FV_OK;
}

fv_status fv_kv_remove(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                       const int32_t *idx, int32_t n) {
    FV_TRY(fv_kv_remove_later(kv, layer, head, seg, idx, n));
    return fv_kv_settle(kv);
}

fv_status fv_kv_remove_later(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                             const int32_t *idx, int32_t n) {
    size_t run = fv_kv_run_at(kv, layer, head, seg);
    int32_t left = kv->run[run].len - n, gone = 0;
    assert(!fv_kv_borrows(kv, layer, seg) && !*fv_kv_packed_slot(kv, layer, seg) && !kv->share);
    while (gone < n && idx[gone] < left) gone++;
    for (int32_t from = left, hole = 0; from < left + n; from++) {
        if (gone < n && idx[gone] == from)
            gone++;
        else
            FV_TRY(row_move(kv, run, idx[hole++], from));
    }
    kv->run[run].len = left;
    fv_kv_check(kv, layer);
    return FV_OK;
}

fv_status fv_kv_fit(fv_kv *kv, int32_t layer, int32_t text) {
    const fv_kv_shape *s = kv->account.shape;
    size_t rows = 0;
    int32_t most = 0;
    assert(!kv->share);
    for (int32_t g = 0; g < s->n_kv; g++) {
        int32_t n = fv_kv_len(kv, layer, g, FV_SEG_TEXT);
        (void)fv_kv_text_pages(kv, layer, g, 0, n > text ? n : text);
        n = fv_kv_len(kv, layer, g, FV_SEG_VISUAL);
        rows += (size_t)n;
        most = n > most ? n : most;
    }
    if (rows == 0) fv_kv_give(&kv->account, &kv->extent[layer]);
    bool loose = 4 * rows * 2 * fv_kv_row_bytes(s) <= 3 * kv->extent[layer].bytes;
    return rows > 0 && loose ? extent_fit(kv, layer, most) : FV_OK;
}
