/* evict=scissorhands: a budget of which a share is evicted when it is full, by how often a token
 * got little attention. */
#include "policy/plan/budget.h"
#include "policy/plan/contribute.h"
#include "policy/plan/decode.h"

void fv_decode_evict_scissorhands(fv_decode_plan *decode, const fv_evict_scissorhands_params *p,
                                  int32_t n_prompt) {
    int32_t most = fv_plan_share(p->keep, n_prompt), left = most - fv_plan_share(p->drop, most);
    if (p->keep >= 1) return;
    decode->accum = (fv_accum_rule){.kind = FV_ACCUM_LOW,
                                    .most = most,
                                    .left = left,
                                    .recent = p->recent < left ? p->recent : left};
}

fv_status fv_plan_evict_scissorhands(fv_plan *plan, const fv_evict_scissorhands_params *p) {
    int32_t n = fv_budget_prompt(plan);
    return fv_plan_accumulate(plan, p->window < n ? p->window : n);
}
