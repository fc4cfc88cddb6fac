/* Merges the two segments in prompt order, and maps entries to columns of the sums. */
#include "prefill-worker/select/select_rows.h"

#include <math.h>

#include "common/top.h"

fv_status fv_select_order(const fv_select_context *ctx, fv_arena *arena, fv_select_rows *out) {
    int32_t at[FV_N_SEG] = {0};
    const int32_t *n = ctx->n, *const *pos = ctx->pos;
    out->n = n[FV_SEG_VISUAL] + n[FV_SEG_TEXT];
    FV_TRY(FV_ARENA_NEW(arena, out->n, out->row));
    for (int32_t i = 0; i < out->n; i++) {
        int32_t v = at[FV_SEG_VISUAL], t = at[FV_SEG_TEXT];
        bool text = v == n[FV_SEG_VISUAL] ||
                    (t < n[FV_SEG_TEXT] && pos[FV_SEG_TEXT][t] < pos[FV_SEG_VISUAL][v]);
        uint8_t seg = text ? FV_SEG_TEXT : FV_SEG_VISUAL;
        out->row[i] = (fv_select_row){seg, at[seg]++};
    }
    return FV_OK;
}

float fv_select_attention(const fv_select_context *ctx, int32_t h, int from, fv_select_row row) {
    const fv_select_sums *s = ctx->sums;
    if (!s) return 0;
    int32_t line = h * s->n_kind + (s->n_kind > 1 ? from : 0);
    int32_t column = row.at + (row.seg == FV_SEG_TEXT ? s->text : 0);
    return s->p[(size_t)line * (size_t)s->n_key + (size_t)column];
}

float fv_select_reduce(const fv_select_context *ctx, const float *x, size_t ld) {
    double sum = 0, top = -HUGE_VAL;
    for (int32_t h = ctx->head0; h < ctx->head1; h++) {
        double of_head = (double)x[(size_t)h * ld];
        sum += of_head;
        top = of_head > top ? of_head : top;
    }
    return (float)(ctx->max ? top : sum / (ctx->head1 - ctx->head0));
}

fv_status fv_select_score(const fv_select_context *ctx, const fv_select_rows *rows, fv_arena *arena,
                          float *score) {
    float *of_head;
    FV_TRY(FV_ARENA_NEW(arena, ctx->head1, of_head));
    for (int32_t i = 0; i < rows->n; i++) {
        for (int32_t h = ctx->head0; h < ctx->head1; h++)
            of_head[h] = fv_select_attention(ctx, h, 0, rows->row[i]);
        score[i] = fv_select_reduce(ctx, of_head, 1);
    }
    return FV_OK;
}

static void to_means(const fv_select_context *ctx, const fv_select_rows *rows, float *score) {
    for (int32_t i = 0; i < rows->n; i++) {
        fv_select_row row = rows->row[i];
        score[i] /= (float)(ctx->n_prompt - ctx->pos[row.seg][row.at]);
    }
}

fv_status fv_select_by_budget(const fv_select_context *ctx, const fv_select_rows *rows,
                              const float *score, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                              int32_t n_kept[FV_N_SEG]) {
    fv_plan_budget b = ctx->budget;
    bool all = rows->n <= (int64_t)b.heavy + b.recent;
    int32_t ahead = all ? 0 : rows->n - b.recent, n_heavy = all ? 0 : b.heavy, *heavy;
    FV_TRY(FV_ARENA_NEW(arena, n_heavy, heavy));
    fv_top(score, ahead, n_heavy, heavy);
    for (int32_t i = 0, k = 0; i < rows->n; i++) {
        bool chosen = k < n_heavy && heavy[k] == i;
        if (!chosen && i < ahead) continue;
        k += chosen;
        kept[rows->row[i].seg][n_kept[rows->row[i].seg]++] = rows->row[i].at;
    }
    return FV_OK;
}

fv_status fv_select_by_attention(const fv_select_context *ctx, bool mean, fv_arena *arena,
                                 int32_t *const kept[FV_N_SEG], int32_t n_kept[FV_N_SEG]) {
    fv_select_rows rows;
    float *score;
    FV_TRY(fv_select_order(ctx, arena, &rows));
    FV_TRY(FV_ARENA_NEW(arena, rows.n, score));
    FV_TRY(fv_select_score(ctx, &rows, arena, score));
    if (mean) to_means(ctx, &rows, score);
    return fv_select_by_budget(ctx, &rows, score, arena, kept, n_kept);
}
