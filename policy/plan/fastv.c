/* prune=fastv: a share of the visual tokens from one layer on, ranked in the layer before. */
#include <math.h>

#include "policy/plan/contribute.h"

/* The authors write Python's round(): halves go to the even number. */
fv_status fv_plan_prune_fastv(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_PRUNE];
    int32_t layer, keep = (int32_t)rint(fv_choice_value(c, "keep") * plan->shape.n_visual);
    FV_TRY(fv_plan_layer(plan, FV_STAGE_PRUNE, "layer", &layer));
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    (fv_choice_is(c, "mode", "drop") ? fv_plan_drop : fv_plan_mask_after)(plan, layer, keep);
    if (plan->n_edit) plan->capture[layer - 1] |= FV_CAPTURE_LAST_ROW;
    return FV_OK;
}
