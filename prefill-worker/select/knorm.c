/* select=knorm (arXiv 2406.11430): keys of small norm receive most attention, so the entries of
 * largest |k_j| are dropped. Rotation changes no norm: keys are read from the store. */
#include <math.h>

#include "prefill-worker/select/select_rows.h"
#include "prefill-worker/select/store_rows.h"

/* of[seg][j] = minus the sum of |k_j| over KV heads [g0, g1), which hold the same rows. */
static fv_status norms(const fv_select_context *ctx, int32_t g0, int32_t g1, fv_arena *arena,
                       float *of[FV_N_SEG]) {
    size_t d = (size_t)fv_kv_get_shape(ctx->kv)->d_head;
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        float *rows;
        FV_TRY(FV_ARENA_NEW(arena, (size_t)ctx->n[seg] * d, rows));
        FV_TRY(FV_ARENA_NEW(arena, ctx->n[seg], of[seg]));
        for (int32_t g = g0; g < g1; g++) {
            const float *k = rows;
            FV_TRY(fv_read_rows(ctx->be, ctx->kv, ctx->layer, g, (fv_kv_segment)seg, false, rows));
            for (int32_t j = 0; j < ctx->n[seg]; j++) {
                double sum = 0;
                for (size_t i = 0; i < d; i++, k++) sum += (double)*k * (double)*k;
                of[seg][j] -= (float)sqrt(sum);
            }
        }
    }
    return FV_OK;
}

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    fv_select_rows rows;
    float *score, *of[FV_N_SEG];
    FV_TRY(fv_select_order(ctx, arena, &rows));
    FV_TRY(FV_ARENA_NEW(arena, rows.n, score));
    bool shared = ctx->params->select_knorm.heads_shared;
    FV_TRY(norms(ctx, shared ? 0 : ctx->head, shared ? ctx->n_kv : ctx->head + 1, arena, of));
    for (int32_t i = 0; i < rows.n; i++) score[i] = of[rows.row[i].seg][rows.row[i].at];
    return fv_select_by_budget(ctx, &rows, score, arena, kept, n_kept);
}

const fv_select_method fv_select_knorm = {.keep = keep};
