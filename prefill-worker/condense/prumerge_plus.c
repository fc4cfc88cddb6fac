/* condense=prumerge_plus: PruMerge+, which keeps tokens at even distances in addition to the
 * outliers (prefill-worker/condense/prumerge.h). */
#include "prefill-worker/condense/prumerge.h"

static fv_status run(const fv_condense_context *ctx, fv_condensed *out) {
    const fv_condense_prumerge_plus_params *p = &ctx->params->condense_prumerge_plus;
    return fv_prumerge_run(ctx, &(fv_prumerge_rule){p->keep, p->neighbours, true}, out);
}

const fv_condense_method fv_condense_prumerge_plus = {.after = true, .whole = true, .run = run};
