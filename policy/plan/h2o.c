/* select=h2o: the attention that all rows of the prompt pay, summed per row. */
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

fv_status fv_plan_select_h2o(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_SELECT];
    int32_t n = fv_budget_prompt(plan);
    fv_plan_window all = {.rows = n,
                          .shared = fv_choice_is(c, "heads", "shared"),
                          .max = fv_choice_is(c, "group", "max")};
    fv_budget_select(plan, fv_budget_of(c, n), &all);
    return FV_OK;
}
