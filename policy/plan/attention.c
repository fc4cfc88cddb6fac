/* expand=attention: packed rows in two planes, of which the second is read for the important. */
#include "policy/plan/attention.h"

#include <string.h>

#include "policy/plan/contribute.h"
#include "policy/plan/packed_shape.h"

bool fv_attention_reads(const fv_policy *policy, double *full, double *alpha) {
    const fv_choice *c = &policy->stage[FV_STAGE_EXPAND];
    if (!c->method || strcmp(c->method->name, "attention") != 0) return false;
    *full = fv_choice_value(c, "full");
    *alpha = fv_choice_value(c, "alpha");
    return true;
}

fv_status fv_plan_expand_attention(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_EXPAND];
    if (!plan->packs) {
        fv_plan_note(plan, FV_STAGE_EXPAND, "no layer is packed");
        return FV_OK;
    }
    plan->observes = true;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) {
        if (!plan->pack[l].rank[FV_PACKED_V]) continue;
        plan->capture[l] |= FV_CAPTURE_LAST_ROW;
        for (int k = fv_choice_is(c, "parts", "both") ? FV_PACKED_K : FV_PACKED_V; k < 2; k++) {
            int32_t rank = plan->pack[l].rank[k];
            int32_t low = fv_plan_share(fv_choice_value(c, "rank"), rank);
            plan->pack[l].rank2[k] = low < 1 ? 1 : low;
        }
    }
    return FV_OK;
}
