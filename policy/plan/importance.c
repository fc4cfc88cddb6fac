/* evict=importance: drops compressed tokens in each layer by the attention of the last prompt
 * token. */
#include "policy/plan/contribute.h"

fv_status fv_plan_evict_importance(fv_plan *plan, const fv_evict_importance_params *p) {
    if (!plan->pack.any) {
        fv_plan_note(plan, FV_STAGE_EVICT, "no layer is packed");
        return FV_OK;
    }
    plan->evict.keep_packed = p->keep;
    if (plan->evict.keep_packed >= 1) {
        fv_plan_note(plan, FV_STAGE_EVICT, "every compressed token is kept");
        return FV_OK;
    }
    plan->pack.observed = true;
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        if (plan->pack.layer[l].rank[1]) plan->capture[l] |= FV_CAPTURE_LAST_ROW;
    return FV_OK;
}
