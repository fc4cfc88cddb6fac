/* condense=hired: HiRED (arXiv 2408.10945). Keeps the tokens with the highest attention of CLS,
 * summed over all heads of the layer that made the features, in their order.
 *
 * The authors divide a budget among the crops of an image by an early layer's attention. A
 * LLaVA-1.5 image is one crop, which gets the whole budget, so that layer is not needed
 * here. */
#include "common/top.h"
#include "policy/plan/condense.h"
#include "prefill-worker/condense/condense.h"

static fv_status run(const fv_condense_context *ctx, fv_condensed *out) {
    int32_t *source, keep = fv_hired_rows(&ctx->params->condense_hired, ctx->n);
    FV_TRY(FV_ARENA_NEW(ctx->arena, keep, source));
    fv_top(ctx->score, ctx->n, keep, source);
    return fv_condense_take(ctx, source, keep, out);
}

const fv_condense_method fv_condense_hired = {.run = run};
