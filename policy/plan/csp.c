/* select=csp: Cross-Self Pruning (arXiv 2412.04652), its counts. Which rows a head keeps depends on
 * data, and with dup=union how many of them are chosen both ways; so the counts are upper bounds.
 */
#include "policy/plan/csp.h"

#include <math.h>
#include <string.h>

#include "policy/plan/contribute.h"

/* 1e-9: shares are not exact in binary. */
static bool keeps_all(double heavy, double recent) { return heavy + recent >= 1 - 1e-9; }

fv_csp_sizes fv_csp_sizes_of(const fv_choice *c, int32_t n_prompt) {
    double heavy = fv_choice_value(c, "heavy"), recent = fv_choice_value(c, "recent");
    double share = fv_choice_value(c, "share");
    if (keeps_all(heavy, recent)) return (fv_csp_sizes){.budget = INT32_MAX};
    fv_csp_sizes s = {.window = fv_plan_share(recent, n_prompt)};
    s.budget = fv_plan_share(heavy, n_prompt) + s.window;
    s.recent = fv_plan_share(fv_choice_value(c, "bias"), s.window);
    if (s.recent > s.budget) s.recent = s.budget;
    s.cross = fv_plan_share(share, s.budget - s.recent);
    s.self = fv_plan_share(1 - share, s.budget - s.recent);
    return s;
}

static const fv_choice *csp_of(const fv_policy *policy) {
    const fv_choice *c = &policy->stage[FV_STAGE_SELECT];
    return c->method && strcmp(c->method->name, "csp") == 0 ? c : NULL;
}

int32_t fv_csp_twice(const fv_policy *policy, int32_t n_prompt) {
    const fv_choice *c = csp_of(policy);
    if (!c || !fv_choice_is(c, "dup", "official")) return 0;
    fv_csp_sizes s = fv_csp_sizes_of(c, n_prompt);
    return s.self < s.cross ? s.self : s.cross;
}

float fv_csp_decode_n(const fv_policy *policy) {
    const fv_choice *c = csp_of(policy);
    return c ? (float)fv_choice_value(c, "nsoftmax_decode") : 0;
}

static int32_t head_rows(const fv_plan *plan, int32_t layer, int32_t head) {
    int32_t n_answer = plan->shape.n_answer, n_text = plan->shape.n_text - n_answer;
    int32_t rows = plan->visual[layer] + n_text, n_prompt = plan->shape.n_visual + n_text;
    fv_csp_sizes s = fv_csp_sizes_of(&plan->policy.stage[FV_STAGE_SELECT], n_prompt);
    (void)head;
    return n_answer + (rows < s.budget ? rows : s.recent + s.self + s.cross);
}

fv_status fv_plan_select_csp(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_SELECT];
    int32_t n_prompt = plan->shape.n_visual + plan->shape.n_text - plan->shape.n_answer;
    plan->decode_n = fv_csp_decode_n(&plan->policy);
    fv_plan_select(plan, head_rows);
    if (!plan->select) {
        if (plan->decode_n > 0) plan->note[FV_STAGE_SELECT][0] = '\0'; /* it changes the answer */
        return FV_OK;
    }
    plan->twice = fv_csp_twice(&plan->policy, n_prompt);
    if (!fv_choice_is(c, "dup", "official")) plan->exact_counts = false;
    plan->window = (fv_plan_window){.rows = fv_csp_sizes_of(c, n_prompt).window,
                                    .n = (float)fv_choice_value(c, "nsoftmax_select"),
                                    .by_segment = true,
                                    .shared = fv_choice_is(c, "heads", "shared"),
                                    .max = fv_choice_is(c, "group", "max")};
    return FV_OK;
}
