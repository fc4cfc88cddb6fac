/* select=snapkv: a window of last rows ranks the rows before it. Sizes are shares of the prompt, as
 * in ports for images, or numbers of rows, as in the authors' code. */
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"

static fv_status check(int32_t window, int32_t capacity, int32_t kernel) {
    if (capacity > 0 && window > capacity)
        return FV_FAIL(
            FV_EINVAL,
            "policy: select=snapkv,capacity=%d,window=%d: the capacity must include the window",
            capacity, window);
    if (kernel % 2 == 0)
        return FV_FAIL(FV_EINVAL, "policy: select=snapkv,kernel=%d: kernel must be odd", kernel);
    return FV_OK;
}

/* A window given in rows is taken from the budget, in a short prompt all of it. */
static fv_status budget_of(const fv_select_snapkv_params *p, int32_t n_prompt,
                           fv_plan_budget *out) {
    fv_plan_budget b = fv_budget_of(p->heavy, p->recent, n_prompt);
    int32_t window = p->window, capacity = p->capacity;
    FV_TRY(check(window, capacity, p->kernel));
    *out = b;
    if (capacity == 0 && b.heavy == INT32_MAX) return FV_OK;
    if (capacity == 0) capacity = b.heavy + b.recent;
    if (window == 0) window = fv_plan_share(p->recent, n_prompt);
    if (window > capacity) window = capacity;
    *out = (fv_plan_budget){.heavy = capacity - window, .recent = window};
    return FV_OK;
}

fv_status fv_plan_select_snapkv(fv_plan *plan, const fv_select_snapkv_params *p) {
    fv_plan_budget budget;
    FV_TRY(budget_of(p, fv_budget_prompt(plan), &budget));
    fv_plan_window last = {.rows = budget.recent, .shared = p->heads_shared, .max = p->group_max};
    fv_budget_select(plan, budget, &last);
    return FV_OK;
}
