/* prune=fastv: keeps a share of the visual tokens from one layer on, ranked in the layer before
 * it. */
#include <math.h>

#include "policy/plan/contribute.h"

/* Rounds as the authors' Python round(): halves to even. */
fv_status fv_plan_prune_fastv(fv_plan *plan, const fv_prune_fastv_params *p) {
    int32_t keep = (int32_t)rint(p->keep * plan->shape.n_visual);
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    (p->mode_drop ? fv_plan_drop : fv_plan_mask_after)(plan, p->layer, keep);
    if (plan->prune.n_edit) plan->capture[p->layer - 1] |= FV_CAPTURE_LAST_ROW;
    return FV_OK;
}
