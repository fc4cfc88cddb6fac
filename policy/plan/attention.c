/* expand=attention: factors are stored in two planes, of which the second is read for important
 * tokens only; of coefficients, other tokens read the first directions only. */
#include "policy/plan/contribute.h"
#include "policy/plan/decode.h"
#include "policy/plan/packed_shape.h"

static fv_plan_read read_of(const fv_expand_attention_params *p) {
    return (fv_plan_read){.by_importance = true, .full = p->full, .alpha = p->alpha};
}

void fv_decode_expand_attention(fv_decode_plan *decode, const fv_expand_attention_params *p,
                                int32_t n_prompt) {
    (void)n_prompt;
    decode->read = read_of(p);
}

fv_status fv_plan_expand_attention(fv_plan *plan, const fv_expand_attention_params *p) {
    if (!plan->pack.any) {
        fv_plan_note(plan, FV_STAGE_EXPAND, "no layer is packed");
        return FV_OK;
    }
    plan->read = read_of(p);
    plan->pack.observed = true;
    int first = p->parts_both ? FV_PACKED_K : FV_PACKED_V;
    for (int k = first; k < 2 && plan->pack.latent; k++) plan->pack.low[k] = p->rank;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) {
        if (!plan->pack.layer[l].rank[FV_PACKED_V]) continue;
        plan->capture[l] |= FV_CAPTURE_LAST_ROW;
        for (int k = first; k < 2 && !plan->pack.latent; k++) {
            int32_t rank = plan->pack.layer[l].rank[k], low = fv_plan_share(p->rank, rank);
            plan->pack.layer[l].rank2[k] = low < 1 ? 1 : low;
        }
    }
    return FV_OK;
}
