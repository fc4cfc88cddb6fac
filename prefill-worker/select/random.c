/* select=random: the baseline that every other choice of KV entries must beat. Each KV head of each
 * layer draws a subset of its own, or each layer one for all of its heads. */
#include "common/subset.h"
#include "prefill-worker/select/select_rows.h"

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    const fv_select_random_params *p = &ctx->params->select_random;
    int32_t head = p->heads_shared ? 0 : ctx->head;
    uint64_t which = (uint64_t)ctx->layer * (uint64_t)ctx->n_kv + (uint64_t)head + 1;
    uint64_t seed = p->seed + (which << 32);
    fv_select_rows rows;
    float *score;
    int32_t *drawn;
    FV_TRY(fv_select_order(ctx, arena, &rows));
    FV_TRY(FV_ARENA_NEW(arena, rows.n, score));
    if (rows.n > (int64_t)ctx->budget.heavy + ctx->budget.recent) {
        FV_TRY(FV_ARENA_NEW(arena, ctx->budget.heavy, drawn));
        fv_subset(seed, rows.n - ctx->budget.recent, ctx->budget.heavy, drawn);
        for (int32_t k = 0; k < ctx->budget.heavy; k++) score[drawn[k]] = 1;
    }
    return fv_select_by_budget(ctx, &rows, score, arena, kept, n_kept);
}

const fv_select_method fv_select_random = {.keep = keep};
