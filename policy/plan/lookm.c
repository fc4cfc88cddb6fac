/* select=lookm: H2O's sums, with priority for text. The number of text tokens among the last ones
 * is not known in advance, so the count is an upper bound. */
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

static int32_t head_rows(const fv_plan *plan, int32_t layer, int32_t head) {
    int32_t n_answer = plan->shape.n_answer, n_text = plan->shape.n_text - n_answer;
    int32_t rows = plan->visual[layer] + n_text, heavy = plan->select.budget.heavy;
    bool text = plan->params[FV_STAGE_SELECT].select_lookm.prior_text;
    if (text && heavy < n_text) heavy = n_text;
    (void)head;
    int64_t most = (int64_t)heavy + plan->select.budget.recent;
    return n_answer + (int32_t)(rows < most ? rows : most);
}

fv_status fv_plan_select_lookm(fv_plan *plan, const fv_select_lookm_params *p) {
    int32_t n = fv_budget_prompt(plan);
    plan->select.budget = fv_budget_of(p->heavy, p->recent, n);
    fv_plan_select(plan, head_rows);
    if (!plan->select.count) {
        plan->select.budget = (fv_plan_budget){0};
        return FV_OK;
    }
    plan->select.window = (fv_plan_window){.rows = n};
    if (p->prior_text) plan->exact_counts = false;
    return FV_OK;
}
