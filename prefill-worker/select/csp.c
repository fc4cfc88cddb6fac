/* select=csp: Cross-Self Pruning (arXiv 2412.04652). With A the attention of the window's tokens,
 * its n-softmax taken over all columns, a token j before the recent ones has
 *     self_j  = sum of A_ij over window tokens i of j's modality      (the paper's A_tt, A_vv)
 *     cross_j = sum of A_ij over window tokens i of the other one     (A_vt, A_tv)
 * The tokens of highest self_j, those of highest cross_j and the recent ones are kept. The paper takes the
 * mean over all heads (heads=shared) and holds a token once; the authors' code chooses per head, and holds
 * a token that is in both lists twice (dup=official).
 *
 * Layers that share keys choose by the mean over them; if they share those of visual tokens only,
 * each fills the text tokens' share of both lists with the text tokens that received most of its
 * own attention. */
#include "policy/plan/csp.h"
#include "common/top.h"
#include "prefill-worker/select/select_rows.h"

/* Replaces the text tokens in kept[n_kept] by as many text tokens of [0, n) with the most attention in
 * this layer alone. */
static fv_status choose_text(const fv_select_context *ctx, const fv_select_row *rows, int32_t n,
                             bool cross, fv_arena *arena, int32_t *kept, int32_t n_kept) {
    const float *own = ctx->own[cross ? FV_SEG_VISUAL : FV_SEG_TEXT];
    int32_t n_text = 0, keep = 0, *text, *top;
    float *score;
    FV_TRY(FV_ARENA_NEW(arena, n, text));
    FV_TRY(FV_ARENA_NEW(arena, n, score));
    FV_TRY(FV_ARENA_NEW(arena, n_kept, top));
    for (int32_t i = 0; i < n; i++) {
        if (rows[i].seg != FV_SEG_TEXT) continue;
        score[n_text] = own[rows[i].at];
        text[n_text++] = i;
    }
    for (int32_t k = 0; k < n_kept; k++) keep += rows[kept[k]].seg == FV_SEG_TEXT;
    fv_top(score, n_text, keep, top);
    for (int32_t k = 0, t = 0; k < n_kept; k++)
        if (rows[kept[k]].seg == FV_SEG_TEXT) kept[k] = text[top[t++]];
    return FV_OK;
}

/* Adds 1 to times[i] of the `keep` tokens of [0, n) with the most attention of window tokens of
 * their own modality (or of the other). */
static fv_status choose(const fv_select_context *ctx, const fv_select_row *rows, int32_t n,
                        int32_t keep, bool cross, fv_arena *arena, uint8_t *times) {
    float *score;
    int32_t *kept;
    if (keep > n) keep = n;
    FV_TRY(FV_ARENA_NEW(arena, n, score));
    FV_TRY(FV_ARENA_NEW(arena, keep, kept));
    for (int32_t i = 0; i < n; i++) {
        const float *attention = ctx->attention[cross ? !rows[i].seg : rows[i].seg][rows[i].seg];
        score[i] =
            attention ? attention[rows[i].at] : 0; /* a window of no tokens gives no attention */
    }
    fv_top(score, n, keep, kept);
    if (ctx->own[FV_SEG_TEXT]) FV_TRY(choose_text(ctx, rows, n, cross, arena, kept, keep));
    for (int32_t k = 0; k < keep; k++) times[kept[k]]++;
    return FV_OK;
}

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    _Static_assert(FV_N_SEG == 2 && FV_SEG_VISUAL == 0, "the other modality of seg is !seg");
    fv_csp_sizes s = fv_csp_sizes_of(&ctx->params->select_csp, ctx->n_prompt);
    bool twice = ctx->params->select_csp.dup_official;
    fv_select_rows rows;
    uint8_t *times;
    FV_TRY(fv_select_order(ctx, arena, &rows));
    FV_TRY(FV_ARENA_NEW(arena, rows.n, times));
    bool all = rows.n < s.budget;
    if (!all) {
        FV_TRY(choose(ctx, rows.row, rows.n - s.recent, s.self, false, arena, times));
        FV_TRY(choose(ctx, rows.row, rows.n - s.recent, s.cross, true, arena, times));
    }
    for (int32_t i = 0; i < rows.n; i++) {
        fv_select_row row = rows.row[i];
        if (all || i >= rows.n - s.recent) times[i] = 1;
        if (times[i] > 0) kept[row.seg][n_kept[row.seg]++] = row.at;
        if (times[i] > 1 && twice) kept[row.seg][n_kept[row.seg]++] = row.at;
    }
    return FV_OK;
}

const fv_select_method fv_select_csp = {.keep = keep};
