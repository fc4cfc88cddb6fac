/* Keeps a share of the visual tokens from one layer on, for prune methods that choose without
 * attention. */
#include "policy/plan/contribute.h"

fv_status fv_plan_prune_share(fv_plan *plan, int32_t layer, double keep) {
    if (!fv_plan_text_only(plan, FV_STAGE_PRUNE))
        fv_plan_drop(plan, layer, fv_plan_share(keep, plan->shape.n_visual));
    return FV_OK;
}
