/* evict=h2o: continues the sums of attention over all prompt tokens during the answer. */
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"
#include "policy/plan/decode.h"

void fv_decode_evict_h2o(fv_decode_plan *decode, const fv_evict_h2o_params *p, int32_t n_prompt) {
    fv_plan_budget b = fv_budget_of(p->heavy, p->recent, n_prompt);
    if (b.heavy == INT32_MAX) return;
    decode->accum = (fv_accum_rule){.kind = FV_ACCUM_SUM,
                                    .most = b.heavy + b.recent,
                                    .left = b.heavy + b.recent,
                                    .recent = b.recent,
                                    .mean = p->normalise_seen};
}

fv_status fv_plan_evict_h2o(fv_plan *plan, const fv_evict_h2o_params *p) {
    (void)p;
    return fv_plan_accumulate(plan, fv_budget_prompt(plan));
}
