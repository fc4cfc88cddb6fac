/* prune=pdrop: PyramidDrop (arXiv 2410.17247). Before layer r, each image keeps the tokens that receive
 * most attention from the last prompt token, by layer r's own queries and keys, mean over heads. The
 * remaining tokens are renumbered (fv_plan_prune_stage.renumbers). */
#include <assert.h>

#include "policy/plan/contribute.h"
#include "prefill-worker/prune/prune.h"

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept) {
    int32_t from = 0;
    (void)state;
    *n_kept = 0;
    assert(ctx->attention && (ctx->n_span > 0 || ctx->n_visual == 0));
    for (int32_t i = 0; i < ctx->n_span;) {
        const fv_token_span *last;
        int32_t end = from, n = 0, image = ctx->span[i].image;
        do n += (last = &ctx->span[i++])->n;
        while (i < ctx->n_span && ctx->span[i].image == image);
        n = fv_plan_share(ctx->share, n);
        while (end < ctx->n_visual && ctx->pos[end] < last->first + last->n) end++;
        fv_top(ctx->attention + from, end - from, n, kept + *n_kept);
        for (int32_t k = 0; k < n; k++) kept[(*n_kept)++] += from;
        from = end;
    }
    return FV_OK;
}

const fv_prune_method fv_prune_pdrop = {.keep = keep};
