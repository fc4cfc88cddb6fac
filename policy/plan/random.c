/* prune=random: a share of the visual rows from one layer on. select=random: a share of all rows,
 * in each KV head. */
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

fv_status fv_plan_prune_random(fv_plan *plan) {
    double share = fv_choice_value(&plan->policy.stage[FV_STAGE_PRUNE], "keep");
    int32_t layer;
    FV_TRY(fv_plan_layer(plan, FV_STAGE_PRUNE, "layer", &layer));
    if (!fv_plan_text_only(plan, FV_STAGE_PRUNE))
        fv_plan_drop(plan, layer, fv_plan_share(share, plan->shape.n_visual));
    return FV_OK;
}

fv_status fv_plan_select_random(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_SELECT];
    fv_budget_select(plan, fv_budget_of(c, fv_budget_prompt(plan)), NULL);
    return FV_OK;
}
