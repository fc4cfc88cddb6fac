/* prune=vtw: drops all visual tokens before one layer, given or measured: the first layer from
 * which on they do not change the last token's distribution (cli/calibrate/vtw.c). */
#include <stdio.h>

#include "policy/plan/contribute.h"

static fv_status calibrated_layer(const fv_plan *plan, int32_t *layer) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_PRUNE];
    if (c->given[0])
        return FV_FAIL(FV_EINVAL,
                       "policy: prune=vtw: layer=%d and from=calibrated: write one of "
                       "them",
                       plan->params[FV_STAGE_PRUNE].prune_vtw.layer);
    if (plan->shape.uncalibrated)
        return FV_FAIL(FV_EINVAL, "policy: prune=vtw,from=calibrated: %s",
                       plan->shape.uncalibrated);
    if (plan->shape.withdraw == 0)
        return FV_FAIL(FV_EINVAL,
                       "policy: prune=vtw,from=calibrated: no layer was measured for this "
                       "checkpoint; run `fovea calibrate --checkpoint DIR`, or give a layer");
    *layer = plan->shape.withdraw;
    return FV_OK;
}

fv_status fv_plan_prune_vtw(fv_plan *plan, const fv_prune_vtw_params *p) {
    int32_t layer = p->layer;
    if (p->from_calibrated) {
        FV_TRY(calibrated_layer(plan, &layer));
        fv_plan_clear_mapped(plan, FV_STAGE_PRUNE);
    }
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    if (layer >= plan->shape.n_layer) {
        fv_plan_note(plan, FV_STAGE_PRUNE,
                     "on this checkpoint every layer needs the image, as its calibration found");
        return FV_OK;
    }
    fv_plan_drop(plan, layer, 0);
    if (p->from_calibrated)
        snprintf(plan->prune.chose, sizeof plan->prune.chose,
                 "visual tokens are dropped before layer %d, from this checkpoint's calibration",
                 layer);
    return FV_OK;
}
