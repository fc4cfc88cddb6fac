/* select=random: a share of all rows, in each KV head. */
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

fv_status fv_plan_select_random(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_SELECT];
    fv_budget_select(plan, fv_budget_of(c, fv_budget_prompt(plan)), NULL);
    return FV_OK;
}
