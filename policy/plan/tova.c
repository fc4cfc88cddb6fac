/* evict=tova: a budget, and what the last row paid. */
#include "policy/plan/accum.h"
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

fv_accum_rule fv_accum_tova(const fv_choice *c, int32_t n_prompt) {
    double keep = fv_choice_value(c, "keep");
    int32_t rows = fv_plan_share(keep, n_prompt);
    if (keep >= 1) return (fv_accum_rule){0};
    return (fv_accum_rule){.kind = FV_ACCUM_LAST, .most = rows, .left = rows, .shared = true};
}

fv_status fv_plan_evict_tova(fv_plan *plan) { return fv_plan_accum(plan, 1); }
