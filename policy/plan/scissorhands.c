/* evict=scissorhands: a budget that is cut into when it is full, and how often a row was paid
 * little. */
#include "policy/plan/accum.h"
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

fv_accum_rule fv_accum_scissorhands(const fv_choice *c, int32_t n_prompt) {
    double keep = fv_choice_value(c, "keep");
    int32_t most = fv_plan_share(keep, n_prompt);
    int32_t left = most - fv_plan_share(fv_choice_value(c, "drop"), most);
    int32_t recent = (int32_t)fv_choice_value(c, "recent");
    if (keep >= 1) return (fv_accum_rule){0};
    return (fv_accum_rule){
        .kind = FV_ACCUM_LOW, .most = most, .left = left, .recent = recent < left ? recent : left};
}

fv_status fv_plan_evict_scissorhands(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_EVICT];
    int32_t window = (int32_t)fv_choice_value(c, "window"), n = fv_budget_prompt(plan);
    return fv_plan_accum(plan, window < n ? window : n);
}
