/* select=snapkv (arXiv 2404.14469). The last w tokens score the tokens before them, by query head h
 *     s^h_j = sum of A^h_ij over the window's tokens i,  j < L - w
 *     p^h   = pooling of s^h along the prompt, of the same length: width k, stride 1
 *     p_j   = mean of p^h_j over the query heads of a KV head
 * The tokens of highest p_j are kept, and the window. Averages count positions past an end as 0. The
 * authors' code keeps entries for every query head, H heads instead of Hkv; the mean
 * after the pooling is kvpress's. */
#include <math.h>

#include "prefill-worker/select/select_rows.h"

/* Pools one head's x [n] into y [n]. */
static void pool(const float *x, int32_t n, int32_t kernel, bool max, float *y) {
    for (int32_t i = 0; i < n; i++) {
        double sum = 0, top = -HUGE_VAL;
        for (int32_t j = i - kernel / 2; j <= i + kernel / 2; j++) {
            if (j < 0 || j >= n) continue;
            sum += (double)x[j];
            top = (double)x[j] > top ? (double)x[j] : top;
        }
        y[i] = (float)(max ? top : sum / kernel);
    }
}

static fv_status pooled(const fv_select_context *ctx, const fv_select_rows *rows, int32_t n,
                        fv_arena *arena, float *score) {
    const fv_select_snapkv_params *p = &ctx->params->select_snapkv;
    float *attention, *of_head;
    FV_TRY(FV_ARENA_NEW(arena, n, attention));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)ctx->head1 * (size_t)n, of_head));
    for (int32_t h = ctx->head0; h < ctx->head1; h++) {
        for (int32_t i = 0; i < n; i++) attention[i] = fv_select_attention(ctx, h, 0, rows->row[i]);
        pool(attention, n, p->kernel, p->pool_max, of_head + (size_t)h * (size_t)n);
    }
    for (int32_t i = 0; i < n; i++) score[i] = fv_select_reduce(ctx, of_head + i, (size_t)n);
    return FV_OK;
}

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    fv_select_rows rows;
    float *score;
    FV_TRY(fv_select_order(ctx, arena, &rows));
    FV_TRY(FV_ARENA_NEW(arena, rows.n, score));
    if (rows.n > ctx->budget.recent)
        FV_TRY(pooled(ctx, &rows, rows.n - ctx->budget.recent, arena, score));
    return fv_select_by_budget(ctx, &rows, score, arena, kept, n_kept);
}

const fv_select_method fv_select_snapkv = {.keep = keep};
