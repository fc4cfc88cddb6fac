/* prune=pdrop: PyramidDrop (arXiv 2410.17247). Before layer r, with that layer's own queries and
 * keys of the rows as they are: of each image the rows stay that the prompt's last row pays most
 * to, mean over heads. What is left is renumbered (fv_plan.renumbers). */
#include <assert.h>

#include "prefill-worker/prune/prune.h"

static fv_status keep(const fv_prune_context *ctx, int32_t *kept) {
    int32_t each = ctx->keep / ctx->n_image, n_kept = 0;
    assert(ctx->attention && ctx->keep % ctx->n_image == 0);
    for (int32_t from = 0, end; from < ctx->n_visual; from = end) {
        for (end = from + 1; end < ctx->n_visual && ctx->image[end] == ctx->image[from];) end++;
        fv_prune_top(ctx->attention + from, end - from, each, kept + n_kept);
        for (int32_t i = 0; i < each; i++) kept[n_kept++] += from;
    }
    return FV_OK;
}

extern const fv_prune_method fv_prune_pdrop;
const fv_prune_method fv_prune_pdrop = {.name = "pdrop", .keep = keep};
