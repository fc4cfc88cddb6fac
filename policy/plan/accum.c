/* From an evict stage to its rule. Pure functions. */
#include "policy/plan/accum.h"

#include <string.h>

#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

static const struct {
    const char *name;
    fv_accum_rule (*of)(const fv_choice *c, int32_t n_prompt);
} methods[] = {
    {"h2o", fv_accum_h2o}, {"scissorhands", fv_accum_scissorhands}, {"tova", fv_accum_tova}};

fv_accum_rule fv_accum_of(const fv_policy *policy, int32_t n_prompt) {
    const fv_choice *c = &policy->stage[FV_STAGE_EVICT];
    for (size_t i = 0; c->method && i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i].name, c->method->name) == 0) return methods[i].of(c, n_prompt);
    return (fv_accum_rule){0};
}

fv_status fv_plan_accum(fv_plan *plan, int32_t rows) {
    plan->accum = fv_accum_of(&plan->policy, fv_budget_prompt(plan));
    if (plan->accum.kind)
        plan->accum_rows = rows;
    else
        fv_plan_note(plan, FV_STAGE_EVICT, "its budget is the whole prompt, and every row stays");
    return FV_OK;
}
