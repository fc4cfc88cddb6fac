/* Drops rows of packed layers, and gives their memory back. One thread at a time. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"

/* Records how many rows the layer had at first, for when it is no longer packed. */
static void note_first(fv_kv *kv, int32_t layer) {
    int32_t n[1024], n_kv = kv->account.shape->n_kv;
    assert(n_kv <= 1024);
    for (int32_t g = 0; g < n_kv; g++) n[g] = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL)->n_first;
    fv_kv_set_ranked(kv, layer, n);
}

void fv_kv_packed_end(fv_kv *kv, int32_t layer) {
    note_first(kv, layer);
    fv_kv_packed_drop(kv, layer, FV_SEG_VISUAL);
}

static fv_status shorten(fv_kv *kv, fv_kv_packed *p, const int32_t *alive) {
    p->n_alive = 0;
    for (int32_t a = 0; a < p->rows.n_anchor; a++) {
        assert(alive[a] >= 0 && alive[a] <= p->alive[a]);
        p->alive[a] = alive[a];
        p->n_alive += alive[a];
    }
    return fv_kv_packed_send_alive(kv, p);
}

fv_status fv_kv_packed_shorten(fv_kv *kv, int32_t layer, const int32_t *alive) {
    bool alone = fv_kv_packed_format_of(fv_kv_packed_of(kv, layer, FV_SEG_VISUAL))->nested;
    for (int32_t l = layer; l < (alone ? layer + 1 : kv->account.shape->n_layer); l++) {
        fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (!p || (!alone && p->source_layer != layer)) continue;
        note_first(kv, l);
        FV_TRY(shorten(kv, p, alive));
    }
    return FV_OK;
}

/* Builds the block with the remaining rows. The old one is copied out first, so that a full pool
 * does not prevent freeing memory; and the new one is arranged on the host, wherever the store
 * is. */
static fv_status part_laid(fv_kv *kv, fv_kv_packed *p, int kind, const int32_t *idx, int32_t n,
                           fv_arena *arena) {
    fv_device *dev = kv->account.device;
    fv_packed_part old = p->part[kind];
    size_t bytes = fv_packed_bytes(&old.shape);
    if (bytes == 0) { /* borrows everything */
        p->part[kind].shape.n = n;
        return FV_OK;
    }
    FV_TRY(fv_arena_alloc(arena, bytes, &old.data));
    FV_TRY(fv_device_copy(dev, old.data, p->part[kind].data, bytes));
    fv_packed_part laid = {.shape = fv_packed_kept(&old, idx, n)};
    bytes = fv_packed_bytes(&laid.shape);
    FV_TRY(fv_arena_alloc(arena, bytes, &laid.data));
    fv_packed_keep(&old, idx, &laid);
    fv_kv_give(&kv->account, &p->part_buf[kind]);
    FV_TRY(fv_kv_packed_take_part(kv, p, kind, &laid.shape));
    return dev->ops->copy_async(dev, p->part[kind].data, laid.data, bytes);
}

static fv_status part_keep(fv_kv *kv, fv_kv_packed *p, int kind, const int32_t *idx, int32_t n) {
    fv_arena arena = {0};
    fv_status st = part_laid(kv, p, kind, idx, n, &arena);
    fv_arena_fini(&arena);
    return st;
}

/* Keeps the means of this turn for rows idx[0 .. n) only. */
static fv_status turn_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    fv_device *dev = kv->account.device;
    size_t had = fv_kv_packed_turn_rows(p);
    if (had == 0) return FV_OK;
    float *turn = malloc((had + (size_t)n) * sizeof *turn);
    if (!turn) return FV_FAIL(FV_ENOMEM, "out of memory to evict packed rows");
    fv_status st = fv_device_copy(dev, turn, p->turn, had * sizeof *turn);
    for (int32_t j = 0; j < n; j++) turn[had + (size_t)j] = turn[idx[j]];
    if (st == FV_OK) st = dev->ops->copy_async(dev, p->turn, turn + had, (size_t)n * sizeof *turn);
    free(turn);
    return st;
}

/* Keeps importance and this turn's means for rows idx[0 .. n) only. */
static fv_status observed_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    if (!p->importance) return FV_OK;
    float *seen = malloc((size_t)n * sizeof *seen);
    if (!seen) return FV_FAIL(FV_ENOMEM, "out of memory to evict packed rows");
    for (int32_t j = 0; j < n; j++) seen[j] = p->importance[idx[j]];
    fv_status st = turn_keep(kv, p, idx, n);
    free(p->importance);
    p->importance = seen;
    p->stale = p->observed;
    return st;
}

/* Takes the set of rows idx[0 .. n), without anchor blocks that lose all their rows. */
static fv_status set_keep(fv_kv *kv, const fv_kv_packed *was, const int32_t *idx, int32_t n,
                          fv_arena *arena, fv_kv_packed_set **out) {
    int32_t *pos, *first, *anchor, n_anchor = 0;
    FV_TRY(FV_ARENA_NEW(arena, n, pos));
    FV_TRY(FV_ARENA_NEW(arena, was->rows.n_anchor + 1, first));
    FV_TRY(FV_ARENA_NEW(arena, was->rows.n_anchor, anchor));
    for (int32_t a = 0, j = 0; a < was->rows.n_anchor; a++) {
        int32_t from = j;
        for (; j < n && idx[j] < was->first[a + 1]; j++) {
            assert(idx[j] < was->first[a] + was->alive[a]);
            pos[j] = was->pos[idx[j]];
        }
        if (j == from) continue;
        if (was->anchor) anchor[n_anchor] = was->anchor[a];
        first[n_anchor++] = from;
    }
    first[n_anchor] = n;
    fv_kv_packed_set like = {.n = n,
                             .n_anchor = n_anchor,
                             .pos = pos,
                             .first = first,
                             .anchor = was->anchor ? anchor : NULL,
                             .tiles = was->set->tiles,
                             .turned = was->set->turned};
    return fv_kv_packed_set_take(kv, &like, out);
}

/* Updates the tables for rows idx[0 .. n). */
static fv_status rows_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    fv_kv_packed was = *p;
    fv_arena arena = {0};
    fv_kv_packed_set *set;
    FV_TRY(observed_keep(kv, p, idx, n));
    /* Reuse the old set's charge for the new one, so that no other request can take it in
     * between. */
    size_t before = was.set->charged, charged = was.set->refs == 1 ? 0 : before;
    FV_TRY(fv_kv_charge_tables(&kv->account, charged, &was.set->charged));
    fv_status st = set_keep(kv, &was, idx, n, &arena, &set);
    fv_arena_fini(&arena);
    if (st != FV_OK) {
        (void)fv_kv_charge_tables(&kv->account, before, &was.set->charged);
        return st;
    }
    if (set == was.set) FV_TRY(fv_kv_charge_tables(&kv->account, charged, &set->charged));
    st = fv_kv_packed_own_arrays(p, n, set->n_anchor, was.rank != NULL);
    if (st != FV_OK) {
        p->host = was.host;
        fv_kv_packed_set_give(kv, set);
        (void)fv_kv_charge_tables(&kv->account, before, &was.set->charged);
        return st;
    }
    for (int32_t a = 0; a < set->n_anchor; a++) p->alive[a] = set->first[a + 1] - set->first[a];
    for (int32_t j = 0; j < n; j++) {
        p->group[j] = was.group[idx[j]];
        if (was.rank) p->rank[j] = was.rank[idx[j]];
    }
    p->n_alive = n;
    free(was.host);
    fv_buf_free(&p->rows_buf);
    fv_kv_packed_set_give(kv, was.set);
    FV_TRY(fv_kv_packed_lay_rows(kv, p, set)); /* without angles: those belong to the old set */
    return fv_kv_packed_charge(kv, p, p->pays_observed);
}

static fv_status layer_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n) {
    fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    note_first(kv, layer);
    if (n == 0) {
        fv_kv_packed_drop(kv, layer, FV_SEG_VISUAL);
        return FV_OK;
    }
    if (fv_kv_packed_owns_keys(p, layer)) FV_TRY(part_keep(kv, p, FV_PACKED_K, idx, n));
    FV_TRY(part_keep(kv, p, FV_PACKED_V, idx, n));
    fv_kv_packed_follow(kv, p, layer);
    return rows_keep(kv, p, idx, n);
}

/* The first rows of idx that the block has, if its layer may have fewer than its source layer. */
static int32_t first_rows(const fv_kv_packed *p, const int32_t *idx, int32_t n) {
    int32_t some = 0;
    if (!fv_kv_packed_format_of(p)->nested) return n;
    while (some < n && idx[some] < p->n_alive) some++;
    return some;
}

/* With `of` layer l keeps idx[0 .. of[l]), otherwise those of idx[0 .. n) that it has. */
static fv_status keep_all(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n,
                          const int32_t *of) {
    assert(fv_kv_packed_of(kv, layer, FV_SEG_VISUAL)->source_layer == layer);
    for (int32_t l = layer; l < kv->account.shape->n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (p && p->source_layer == layer)
            FV_TRY(layer_keep(kv, l, idx, of ? of[l] : first_rows(p, idx, n)));
    }
    fv_kv_check(kv, -1);
    return FV_OK;
}

fv_status fv_kv_packed_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n) {
    return keep_all(kv, layer, idx, n, NULL);
}

fv_status fv_kv_packed_nest(fv_kv *kv, int32_t layer, const int32_t *idx, const int32_t *n) {
    return keep_all(kv, layer, idx, 0, n);
}

fv_status fv_kv_packed_fit(fv_kv *kv, int32_t layer) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    int32_t n = 0, *idx = malloc(((size_t)p->n_alive + 1) * sizeof *idx);
    if (!idx) return FV_FAIL(FV_ENOMEM, "out of memory to evict packed rows");
    for (int32_t a = 0; a < p->rows.n_anchor; a++)
        for (int32_t i = 0; i < p->alive[a]; i++) idx[n++] = p->first[a] + i;
    fv_status st = p->source_layer == layer ? fv_kv_packed_keep(kv, layer, idx, n)
                                            : layer_keep(kv, layer, idx, n);
    free(idx);
    return st;
}

fv_status fv_kv_packed_shrink(fv_kv *kv, int32_t layer, int32_t v) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    assert(p->rank);
    int32_t *alive = malloc((size_t)p->rows.n_anchor * sizeof *alive);
    if (!alive) return FV_FAIL(FV_ENOMEM, "out of memory to evict packed rows");
    for (int32_t a = 0; a < p->rows.n_anchor; a++) {
        int32_t left = p->alive[a];
        while (left > 0 && p->rank[p->first[a] + left - 1] >= v) left--;
        alive[a] = left;
    }
    fv_status st = fv_kv_packed_shorten(kv, layer, alive);
    free(alive);
    FV_TRY(st);
    return 4 * p->n_alive <= 3 * p->rows.n ? fv_kv_packed_fit(kv, layer) : FV_OK;
}
