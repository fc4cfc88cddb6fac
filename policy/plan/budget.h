#ifndef FOVEA_POLICY_PLAN_BUDGET_H
#define FOVEA_POLICY_PLAN_BUDGET_H

/* What several select methods have in common: of a prompt of L rows a KV head keeps the last ones,
 * and of those ahead of them the ones of highest score. */
#include "policy/plan/plan.h"

/* floor(heavy L) and floor(recent L); where they come to the
 * whole prompt, no number of rows is too many. */
fv_plan_budget fv_budget_of(double heavy, double recent, int32_t n_prompt);

/* Rows of the prompt, without an answer that is taken up again. */
int32_t fv_budget_prompt(const fv_plan *plan);

/* The select stage keeps this many entries, by the attention of `window` (NULL: it needs none). */
void fv_budget_select(fv_plan *plan, fv_plan_budget budget, const fv_plan_window *window);

#endif
