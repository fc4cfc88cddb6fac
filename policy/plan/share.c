/* A share of the visual tokens from one layer on, for methods of prune= that choose without looking
 * at attention. */
#include "policy/plan/contribute.h"

fv_status fv_plan_prune_share(fv_plan *plan) {
    double share = fv_choice_value(&plan->policy.stage[FV_STAGE_PRUNE], "keep");
    int32_t layer;
    FV_TRY(fv_plan_layer(plan, FV_STAGE_PRUNE, "layer", &layer));
    if (!fv_plan_text_only(plan, FV_STAGE_PRUNE))
        fv_plan_drop(plan, layer, fv_plan_share(share, plan->shape.n_visual));
    return FV_OK;
}
