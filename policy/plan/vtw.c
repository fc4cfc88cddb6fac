/* prune=vtw: no visual row is left behind one layer. */
#include "policy/plan/contribute.h"

fv_status fv_plan_prune_vtw(fv_plan *plan) {
    int32_t layer;
    FV_TRY(fv_plan_layer(plan, FV_STAGE_PRUNE, "layer", &layer));
    if (!fv_plan_text_only(plan, FV_STAGE_PRUNE)) fv_plan_drop(plan, layer, 0);
    return FV_OK;
}
