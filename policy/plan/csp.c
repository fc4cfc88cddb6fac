/* select=csp: Cross-Self Pruning (arXiv 2412.04652), its counts. Which rows a head keeps depends on
 * data and, with dup=union, so does the number of rows chosen both ways: counts are upper
 * bounds. */
#include "policy/plan/csp.h"

#include "policy/plan/contribute.h"
#include "policy/plan/decode.h"

/* 1e-9: shares are not exact in binary. */
static bool keeps_all(double heavy, double recent) { return heavy + recent >= 1 - 1e-9; }

fv_csp_sizes fv_csp_sizes_of(const fv_select_csp_params *p, int32_t n_prompt) {
    if (keeps_all(p->heavy, p->recent)) return (fv_csp_sizes){.budget = INT32_MAX};
    fv_csp_sizes s = {.window = fv_plan_share(p->recent, n_prompt)};
    s.budget = fv_plan_share(p->heavy, n_prompt) + s.window;
    s.recent = fv_plan_share(p->bias, s.window);
    if (s.recent > s.budget) s.recent = s.budget;
    s.cross = fv_plan_share(p->share, s.budget - s.recent);
    s.self = fv_plan_share(1 - p->share, s.budget - s.recent);
    return s;
}

/* Number of a segment's tokens that a KV head may hold twice. */
static int32_t dup_max(const fv_select_csp_params *p, int32_t n_prompt) {
    fv_csp_sizes s = fv_csp_sizes_of(p, n_prompt);
    if (p->dup_union) return 0;
    return s.self < s.cross ? s.self : s.cross;
}

void fv_decode_select_csp(fv_decode_plan *decode, const fv_select_csp_params *p, int32_t n_prompt) {
    decode->dup_max = dup_max(p, n_prompt);
    decode->nsoftmax = (float)p->nsoftmax_decode;
}

static int32_t head_rows(const fv_plan *plan, int32_t layer, int32_t head) {
    int32_t n_answer = plan->shape.n_answer, n_text = plan->shape.n_text - n_answer;
    int32_t rows = plan->visual[layer] + n_text, n_prompt = plan->shape.n_visual + n_text;
    fv_csp_sizes s = fv_csp_sizes_of(&plan->params[FV_STAGE_SELECT].select_csp, n_prompt);
    (void)head;
    return n_answer + (rows < s.budget ? rows : s.recent + s.self + s.cross);
}

fv_status fv_plan_select_csp(fv_plan *plan, const fv_select_csp_params *p) {
    int32_t n_prompt = plan->shape.n_visual + plan->shape.n_text - plan->shape.n_answer;
    plan->select.nsoftmax = (float)p->nsoftmax_decode;
    fv_plan_select(plan, head_rows);
    if (!plan->select.count) {
        if (plan->select.nsoftmax > 0)
            plan->note[FV_STAGE_SELECT][0] = '\0'; /* n-softmax changes the answer */
        return FV_OK;
    }
    plan->select.dup_max = dup_max(p, n_prompt);
    if (p->dup_union) plan->exact_counts = false;
    plan->select.window = (fv_plan_window){.rows = fv_csp_sizes_of(p, n_prompt).window,
                                           .n = (float)p->nsoftmax_select,
                                           .by_segment = true,
                                           .shared = p->heads_shared,
                                           .max = p->group_max};
    return FV_OK;
}
