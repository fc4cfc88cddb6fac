/* prune=random: the baseline that every attention-based choice must beat, a uniform subset of the
 * rows. */
#include "common/subset.h"
#include "prefill-worker/prune/prune.h"

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept) {
    (void)state;
    fv_subset(ctx->params->prune_random.seed, ctx->n_visual, ctx->keep, kept);
    *n_kept = ctx->keep;
    return FV_OK;
}

const fv_prune_method fv_prune_random = {.keep = keep};
