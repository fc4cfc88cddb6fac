/* select=h2o: heavy hitters (arXiv 2306.14048). With A the softmax of the whole prompt, row j has
 *     s_j = sum of A_ij over all rows i of the prompt
 * The recent rows stay, and of the rows before them those of highest s_j. A sum favours rows that many
 * others could see; normalise=seen divides it by their number (as NVIDIA's kvpress does), n_prompt - j. */
#include "prefill-worker/select/select_rows.h"

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    return fv_select_by_attention(ctx, ctx->params->select_h2o.normalise_seen, arena, kept, n_kept);
}

const fv_select_method fv_select_h2o = {.keep = keep};
