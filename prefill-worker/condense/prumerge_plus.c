/* condense=prumerge_plus: PruMerge+, which keeps rows at even distances beside those that stand out
 * (prefill-worker/condense/prumerge.h). */
#include "prefill-worker/condense/prumerge.h"

static fv_status run(const fv_condense_context *ctx, fv_condensed *out) {
    return fv_prumerge_run(ctx, true, out);
}

extern const fv_condense_method fv_condense_prumerge_plus;
const fv_condense_method fv_condense_prumerge_plus = {
    .name = "prumerge_plus", .behind = true, .whole = true, .run = run};
