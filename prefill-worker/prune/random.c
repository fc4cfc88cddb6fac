/* prune=random: the baseline that every attention-based choice must beat, a uniform subset of the
 * rows. */
#include "common/subset.h"
#include "prefill-worker/prune/prune.h"

static fv_status keep(const fv_prune_context *ctx, int32_t *kept) {
    fv_subset((uint64_t)fv_choice_value(ctx->choice, "seed"), ctx->n_visual, ctx->keep, kept);
    return FV_OK;
}

extern const fv_prune_method fv_prune_random;
const fv_prune_method fv_prune_random = {.name = "random", .keep = keep};
