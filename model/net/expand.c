/* Assigns tokens to groups, and drops tokens, by importance. The host chooses: a few hundred
 * numbers per layer. */
#include "model/net/expand.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/top.h"
#include "model/net/config.h"

/* ceil(share n); 1e-9 as shares are not exact in binary. */
static int32_t share_up(double share, int32_t n) {
    double rows = ceil(share * n - 1e-9);
    return rows < 0 ? 0 : rows > n ? n : (int32_t)rows;
}

/* Importance [n] of valid rows; NaN, less than any, for the others. */
static void scores_of(const fv_kv_packed *p, float *score) {
    for (int32_t a = 0; a < p->rows.n_anchor; a++)
        for (int32_t j = p->first[a]; j < p->first[a + 1]; j++)
            score[j] = j < p->first[a] + p->alive[a] ? p->importance[j] : NAN;
}

/* idx[n_top]: the rows of highest importance among the valid ones, ascending. */
static fv_status top_rows(const fv_kv_packed *p, int32_t n_top, int32_t *idx) {
    float *score = malloc((size_t)p->rows.n * sizeof *score);
    if (!score) return FV_FAIL(FV_ENOMEM, "out of memory for %d compressed tokens", p->rows.n);
    scores_of(p, score);
    fv_top(score, p->rows.n, n_top, idx);
    free(score);
    return FV_OK;
}

static fv_status regroup(fv_kv *kv, fv_kv_packed *p, const fv_expand_rule *rule, int32_t *idx) {
    int32_t n_full = share_up(rule->full, p->n_alive);
    FV_TRY(top_rows(p, n_full, idx));
    for (int32_t j = 0; j < p->rows.n; j++) p->group[j] = 1;
    for (int32_t i = 0; i < n_full; i++) p->group[idx[i]] = 0;
    p->stale = false;
    return fv_kv_packed_regroup(kv, p);
}

fv_status fv_expand_regroup(fv_kv *kv) {
    const fv_expand_rule *rule = &fv_kv_get_sequence(kv)->expand;
    for (int32_t l = 0; rule->on && l < fv_kv_get_shape(kv)->n_layer; l++) {
        fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (!p || !p->stale || !p->importance) continue;
        int32_t *idx = malloc((size_t)p->rows.n * sizeof *idx);
        fv_status st =
            idx ? regroup(kv, p, rule, idx)
                : FV_FAIL(FV_ENOMEM, "out of memory for %d compressed tokens", p->rows.n);
        free(idx);
        FV_TRY(st);
    }
    return FV_OK;
}

fv_status fv_expand_end_turn(fv_kv *kv) {
    const fv_expand_rule *rule = &fv_kv_get_sequence(kv)->expand;
    const float *turn;
    if (!rule->on) return FV_OK;
    FV_TRY(fv_kv_packed_turns(kv, &turn));
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++) {
        fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (!p || !p->importance || p->n_turn == 0) continue;
        float keep = p->observed ? (float)pow(rule->alpha, p->n_turn) : 0;
        for (int32_t j = 0; j < p->rows.n; j++)
            p->importance[j] = fmaf(keep, p->importance[j], (1 - keep) * turn[j]);
        turn += p->rows.n;
        p->observed = true;
        p->n_turn = 0;
        p->stale = true;
    }
    return FV_OK;
}

static fv_status keep(fv_kv *kv, int32_t layer, int32_t n) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    int32_t *idx = malloc(((size_t)n + 1) * sizeof *idx);
    if (!idx) return FV_FAIL(FV_ENOMEM, "out of memory for %d compressed tokens", n);
    fv_status st = top_rows(p, n, idx);
    if (st == FV_OK) st = fv_kv_packed_keep(kv, layer, idx, n);
    free(idx);
    return st;
}

static fv_status keep_group(fv_kv *kv, int32_t layer, double share) {
    int32_t n[FV_MAX_LAYERS];
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        n[l] = p ? p->n_alive : 0;
        if (p && share_up(share, p->n_first) < n[l]) n[l] = share_up(share, p->n_first);
    }
    return fv_expand_shrink_group(kv, layer, n);
}

fv_status fv_expand_keep(fv_kv *kv, double share) {
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (!p || p->source_layer != l || !p->importance || !p->observed) continue;
        int32_t n = share_up(share, p->n_first);
        if (fv_kv_packed_format_of(p)->nested)
            FV_TRY(keep_group(kv, l, share));
        else if (n < p->n_alive)
            FV_TRY(keep(kv, l, n));
    }
    return FV_OK;
}

/* Sorts the first v rows of order[] by block, in the order of order[] inside a block: idx[v], and
 * rank[v], the place of each in order[]. */
static fv_status by_block(const fv_kv_packed *p, const int32_t *order, int32_t v, fv_arena *arena,
                          int32_t *idx, int32_t *rank) {
    int32_t *block, *at;
    FV_TRY(FV_ARENA_NEW(arena, p->rows.n, block));
    FV_TRY(FV_ARENA_NEW(arena, p->rows.n_anchor + 1, at));
    for (int32_t a = 0; a < p->rows.n_anchor; a++)
        for (int32_t j = p->first[a]; j < p->first[a + 1]; j++) block[j] = a;
    for (int32_t i = 0; i < v; i++) at[block[order[i]] + 1]++;
    for (int32_t a = 0; a < p->rows.n_anchor; a++) at[a + 1] += at[a];
    for (int32_t i = 0; i < v; i++) {
        int32_t to = at[block[order[i]]]++;
        idx[to] = order[i];
        rank[to] = i;
    }
    return FV_OK;
}

static fv_status least(fv_kv *kv, int32_t layer, int32_t v, fv_arena *arena) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    int32_t *order, *idx, *rank;
    float *score;
    FV_TRY(FV_ARENA_NEW(arena, p->rows.n, score));
    FV_TRY(FV_ARENA_NEW(arena, p->rows.n, order));
    FV_TRY(FV_ARENA_NEW(arena, v, idx));
    FV_TRY(FV_ARENA_NEW(arena, v, rank));
    scores_of(p, score);
    FV_TRY(fv_top_sort(score, p->rows.n, order));
    FV_TRY(by_block(p, order, v, arena, idx, rank));
    FV_TRY(fv_kv_packed_keep(kv, layer, idx, v));
    for (int32_t l = layer; v > 0 && l < fv_kv_get_shape(kv)->n_layer; l++) {
        const fv_kv_packed *with = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (with && with->source_layer == layer) memcpy(with->rank, rank, (size_t)v * sizeof *rank);
    }
    return FV_OK;
}

fv_status fv_expand_keep_top(fv_kv *kv, int32_t layer, int32_t v) {
    fv_arena arena = {0};
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    assert(p->rank && p->observed);
    fv_status st = v < p->n_alive ? least(kv, layer, v, &arena) : FV_OK;
    fv_arena_fini(&arena);
    return st;
}

/* ---- groups of latents ----------------------------------------------------------------------- */

/* The packed rows of layer l if they use the coefficients of `layer`, or NULL. */
static fv_kv_packed *member(const fv_kv *kv, int32_t layer, int32_t l) {
    fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
    return p && p->source_layer == layer ? p : NULL;
}

/* score [n]: mean importance over the layers that hold a row; NaN, less than any, if none does. */
static fv_status mean_scores(const fv_kv *kv, int32_t layer, fv_arena *arena, float *score) {
    int32_t n = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL)->rows.n, *times;
    FV_TRY(FV_ARENA_NEW(arena, n, times));
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++) {
        const fv_kv_packed *p = member(kv, layer, l);
        for (int32_t j = 0; p && p->observed && j < p->n_alive; j++) {
            score[j] += p->importance[j];
            times[j]++;
        }
    }
    for (int32_t j = 0; j < n; j++) score[j] = times[j] ? score[j] / (float)times[j] : NAN;
    return FV_OK;
}

/* idx: the rows to keep, those of the last layer first. */
static fv_status nested_rows(const fv_kv *kv, int32_t layer, const int32_t *n, fv_arena *arena,
                             int32_t *idx) {
    int32_t rows = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL)->rows.n, *order, kept = 0;
    float *score;
    bool *taken;
    FV_TRY(FV_ARENA_NEW(arena, rows, score));
    FV_TRY(FV_ARENA_NEW(arena, rows, order));
    FV_TRY(FV_ARENA_NEW(arena, rows, taken));
    FV_TRY(mean_scores(kv, layer, arena, score));
    FV_TRY(fv_top_sort(score, rows, order));
    for (int32_t l = fv_kv_get_shape(kv)->n_layer - 1; l >= layer; l--) {
        const fv_kv_packed *p = member(kv, layer, l);
        for (int32_t i = 0; p && i < rows && kept < n[l]; i++) {
            if (order[i] >= p->n_alive || taken[order[i]]) continue;
            taken[order[i]] = true;
            idx[kept++] = order[i];
        }
        assert(!p || kept == n[l]);
    }
    return FV_OK;
}

static fv_status nest(fv_kv *kv, int32_t layer, const int32_t *n, fv_arena *arena) {
    int32_t *idx;
    FV_TRY(FV_ARENA_NEW(arena, fv_kv_packed_of(kv, layer, FV_SEG_VISUAL)->rows.n, idx));
    FV_TRY(nested_rows(kv, layer, n, arena, idx));
    FV_TRY(fv_kv_packed_nest(kv, layer, idx, n));
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++) {
        fv_kv_packed *p = member(kv, layer, l);
        for (int32_t j = 0; p && p->rank && j < p->rows.n; j++) p->rank[j] = j;
    }
    return FV_OK;
}

fv_status fv_expand_shrink_group(fv_kv *kv, int32_t layer, const int32_t *n) {
    fv_arena arena = {0};
    bool same = true;
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++)
        same = same && (!member(kv, layer, l) || n[l] == member(kv, layer, l)->n_alive);
    fv_status st = same ? FV_OK : nest(kv, layer, n, &arena);
    fv_arena_fini(&arena);
    return st;
}
