/* select=roco: the mean attention that a row gets (RoCo, arXiv 2402.06262), over the rows i >= j
 * that see it:
 *     m_j = 1 / (n_prompt - j) sum of A_ij over all rows i of the prompt
 * The implementation that comparisons on images use ("mean_h2o") divides by the length of the prompt
 * instead, for every row alike, and so orders rows as select=h2o does: over=all. Neither has the paper's
 * second part, which protects rows whose attention varies most. */
#include "prefill-worker/select/select_rows.h"

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    return fv_select_by_attention(ctx, ctx->params->select_roco.over_seen, arena, kept, n_kept);
}

const fv_select_method fv_select_roco = {.keep = keep};
