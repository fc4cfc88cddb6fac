/* Counts for methods that keep a fixed number of rows in every KV head. Pure functions. */
#include "policy/plan/budget.h"

#include "policy/plan/contribute.h"

fv_plan_budget fv_budget_of(double heavy, double recent, int32_t n_prompt) {
    /* 1e-9: shares are not exact in binary. */
    if (heavy + recent >= 1 - 1e-9) return (fv_plan_budget){.heavy = INT32_MAX};
    return (fv_plan_budget){.heavy = fv_plan_share(heavy, n_prompt),
                            .recent = fv_plan_share(recent, n_prompt)};
}

int32_t fv_budget_prompt(const fv_plan *plan) {
    return plan->shape.n_visual + plan->shape.n_text - plan->shape.n_answer;
}

static int32_t head_rows(const fv_plan *plan, int32_t layer, int32_t head) {
    int32_t n_answer = plan->shape.n_answer;
    int64_t rows = plan->visual[layer] + plan->shape.n_text - n_answer;
    int64_t most = (int64_t)plan->select.budget.heavy + plan->select.budget.recent;
    (void)head;
    return n_answer + (int32_t)(rows < most ? rows : most);
}

void fv_budget_select(fv_plan *plan, fv_plan_budget budget, const fv_plan_window *window) {
    plan->select.budget = budget;
    fv_plan_select(plan, head_rows);
    if (!plan->select.count)
        plan->select.budget = (fv_plan_budget){0};
    else if (window)
        plan->select.window = *window;
}

fv_status fv_plan_select_budget(fv_plan *plan, double heavy, double recent) {
    fv_budget_select(plan, fv_budget_of(heavy, recent, fv_budget_prompt(plan)), NULL);
    return FV_OK;
}

fv_status fv_plan_select_hitters(fv_plan *plan, double heavy, double recent, bool shared,
                                 bool max) {
    int32_t n = fv_budget_prompt(plan);
    fv_plan_window all = {.rows = n, .shared = shared, .max = max};
    fv_budget_select(plan, fv_budget_of(heavy, recent, n), &all);
    return FV_OK;
}
