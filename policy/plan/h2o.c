/* select=h2o: the attention that all tokens of the prompt pay, summed per row. evict=h2o: the same
 * sums go on with the answer. */
#include "policy/plan/accum.h"
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

fv_accum_rule fv_accum_h2o(const fv_choice *c, int32_t n_prompt) {
    fv_plan_budget b = fv_budget_of(c, n_prompt);
    if (b.heavy == INT32_MAX) return (fv_accum_rule){0};
    return (fv_accum_rule){.kind = FV_ACCUM_SUM,
                           .most = b.heavy + b.recent,
                           .left = b.heavy + b.recent,
                           .recent = b.recent,
                           .mean = fv_choice_is(c, "normalise", "seen")};
}

fv_status fv_plan_evict_h2o(fv_plan *plan) { return fv_plan_accum(plan, fv_budget_prompt(plan)); }
