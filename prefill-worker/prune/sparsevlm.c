/* prune=sparsevlm: SparseVLM (arXiv 2410.04417; Gumpest/SparseVLMs). With s[h, j] the attention of
 * the scorers to token j in head h (scorers.h), in version 2 divided by the score that rotation
 * alone would give:
 *     heads   v1: all; v2: those of greatest sum_j s[h, j], a share of all (14 of 32)
 *     score   sum over these heads of s[h, j]
 * Version 1 merges the best of the dropped tokens by density peaks (clusters.h). */
#include <assert.h>
#include <string.h>

#include "common/arena.h"
#include "prefill-worker/prune/clusters.h"
#include "prefill-worker/prune/prune.h"

/* chosen[*n]: the heads with most attention to all visual tokens together. */
static fv_status choose_heads(const fv_prune_context *ctx, fv_arena *arena, int32_t **chosen,
                              int32_t *n) {
    float *mass;
    const fv_prune_sparsevlm_params *p = &ctx->params->prune_sparsevlm;
    *n = p->version_v1 ? ctx->n_head : (int32_t)(p->heads * ctx->n_head + 1e-9);
    if (*n < 1) *n = 1;
    FV_TRY(FV_ARENA_NEW(arena, ctx->n_head, mass));
    FV_TRY(FV_ARENA_NEW(arena, *n, *chosen));
    for (int32_t h = 0; h < ctx->n_head; h++) {
        double sum = 0;
        for (int32_t j = 0; j < ctx->n_visual; j++)
            sum += (double)ctx->sums[(ptrdiff_t)h * ctx->n_key + j];
        mass[h] = (float)sum;
    }
    fv_top(mass, ctx->n_head, *n, *chosen);
    return FV_OK;
}

static fv_status score_rows(const fv_prune_context *ctx, fv_arena *arena, float **out) {
    int32_t *head, n_head;
    FV_TRY(choose_heads(ctx, arena, &head, &n_head));
    FV_TRY(FV_ARENA_NEW(arena, ctx->n_visual, *out));
    for (int32_t j = 0; j < ctx->n_visual; j++) {
        double sum = 0;
        for (int32_t i = 0; i < n_head; i++)
            sum += (double)ctx->sums[(ptrdiff_t)head[i] * ctx->n_key + j];
        (*out)[j] = (float)sum;
    }
    return FV_OK;
}

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept) {
    fv_arena arena = {0};
    float *score;
    (void)state;
    assert(ctx->sums);
    fv_status st = score_rows(ctx, &arena, &score);
    if (st == FV_OK) fv_prune_top(ctx, score, kept, n_kept);
    fv_arena_fini(&arena);
    return st;
}

/* row[*n]: the dropped rows of highest score, floor(0.3 of their number) + 1 of them. */
static fv_status recycle(const fv_prune_context *ctx, const int32_t *kept, fv_arena *arena,
                         int32_t **row, int32_t *n) {
    float *score, *left;
    int32_t n_left = 0, *at, *order;
    FV_TRY(score_rows(ctx, arena, &score));
    FV_TRY(FV_ARENA_NEW(arena, ctx->n_visual, left));
    FV_TRY(FV_ARENA_NEW(arena, ctx->n_visual, at));
    FV_TRY(FV_ARENA_NEW(arena, ctx->n_visual, order));
    FV_TRY(FV_ARENA_NEW(arena, ctx->n_visual, *row));
    for (int32_t j = 0, k = 0; j < ctx->n_visual; j++) {
        if (k < ctx->keep && kept[k] == j) {
            k++;
            continue;
        }
        at[n_left] = j;
        left[n_left++] = score[j];
    }
    *n = (int32_t)(0.3 * n_left + 1e-9) + 1;
    FV_TRY(fv_top_sort(left, n_left, order));
    for (int32_t i = 0; i < *n; i++) (*row)[i] = at[order[i]];
    return FV_OK;
}

static fv_status merge_rows(const fv_prune_context *ctx, const int32_t *kept, fv_arena *arena,
                            int32_t *group, int32_t *centre) {
    int32_t *row, n, *cluster;
    float *x;
    size_t d = (size_t)ctx->d;
    FV_TRY(recycle(ctx, kept, arena, &row, &n));
    FV_TRY(FV_ARENA_NEW(arena, n, cluster));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * d, x));
    for (int32_t i = 0; i < n; i++)
        memcpy(x + (size_t)i * d, ctx->x + (size_t)row[i] * d, d * sizeof *x);
    FV_TRY(fv_clusters(x, n, ctx->d, ctx->merged, arena, cluster, centre));
    for (int32_t j = 0; j < ctx->n_visual; j++) group[j] = -1;
    for (int32_t i = 0; i < n; i++) group[row[i]] = cluster[i];
    for (int32_t c = 0; c < ctx->merged; c++) centre[c] = row[centre[c]];
    return FV_OK;
}

static fv_status merge(const fv_prune_context *ctx, const int32_t *kept, int32_t *group,
                       int32_t *centre) {
    fv_arena arena = {0};
    fv_status st = merge_rows(ctx, kept, &arena, group, centre);
    fv_arena_fini(&arena);
    return st;
}

const fv_prune_method fv_prune_sparsevlm = {.keep = keep, .merge = merge};
