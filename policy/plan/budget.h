#ifndef FOVEA_POLICY_PLAN_BUDGET_H
#define FOVEA_POLICY_PLAN_BUDGET_H

/* Budgets of select methods: of a prompt of L rows, a KV head keeps the last ones, and of the rows
 * before them those of highest score. */
#include "policy/plan/plan.h"

/* floor(heavy L) and floor(recent L); if together they are the whole prompt, the budget is
 * unlimited. */
fv_plan_budget fv_budget_of(double heavy, double recent, int32_t n_prompt);

/* Rows of the prompt, without those of a resumed answer. */
int32_t fv_budget_prompt(const fv_plan *plan);

/* Adds the select stage with this budget, chosen by the attention of `window` (NULL: no attention
 * needed). */
void fv_budget_select(fv_plan *plan, fv_plan_budget budget, const fv_plan_window *window);

#endif
