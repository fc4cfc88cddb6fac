/* evict=tova: a budget, evicting by the last token's attention. */
#include "policy/plan/contribute.h"
#include "policy/plan/decode.h"

void fv_decode_evict_tova(fv_decode_plan *decode, const fv_evict_tova_params *p, int32_t n_prompt) {
    int32_t n = fv_plan_share(p->keep, n_prompt);
    if (p->keep < 1)
        decode->accum =
            (fv_accum_rule){.kind = FV_ACCUM_LAST, .most = n, .left = n, .shared = true};
}

fv_status fv_plan_evict_tova(fv_plan *plan, const fv_evict_tova_params *p) {
    (void)p;
    return fv_plan_accumulate(plan, 1);
}
