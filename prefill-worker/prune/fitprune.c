/* prune=fitprune: FitPrune (arXiv 2409.10197). After a layer, the tokens j of smallest x_j y_j are
 * dropped, where x_j = sum over text tokens i of max_h A[h, i, j], and y_j = the same sum over the n
 * visual tokens, divided by n. The authors drop them between attention and the output projection of that
 * layer; here they are dropped after the layer, which gives the remaining tokens the same bits. The
 * layer's own KV holds them either way. */
#include <assert.h>

#include "common/arena.h"
#include "kv/kv.h"
#include "prefill-worker/prune/prune.h"

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept) {
    fv_arena arena = {0};
    (void)state;
    float *score;
    assert(ctx->sums);
    const float *x = ctx->sums + (ptrdiff_t)FV_SEG_TEXT * ctx->n_key;
    const float *y = ctx->sums + (ptrdiff_t)FV_SEG_VISUAL * ctx->n_key;
    fv_status st = FV_ARENA_NEW(&arena, ctx->n_visual, score);
    if (st == FV_OK) {
        for (int32_t j = 0; j < ctx->n_visual; j++) score[j] = x[j] * (y[j] / (float)ctx->n_visual);
        fv_prune_top(ctx, score, kept, n_kept);
    }
    fv_arena_fini(&arena);
    return st;
}

const fv_prune_method fv_prune_fitprune = {.keep = keep};
