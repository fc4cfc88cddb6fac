/* prune=pvtp: from one layer on, and again after every stride, fewer visual tokens.
 *
 *   p_k = layer + k S,  k = 0, 1, ... while p_k < N        K = floor((N - 1 - layer) / S)
 *   G_k = floor(|V0| (1 - P - k R) + 1e-9), at least 0     rows that layers p_k.. see
 *
 * The number kept is rounded down. Both ratios are shares of the original number of rows: this
 * gives the FLOPs of ST3's table 3 within its rounding, 4.37 T for S = 7. Shares of the remaining
 * rows, as in the printed algorithm, give 4.96 T and more. A step is ranked in the layer before
 * it. */
#include "policy/plan/contribute.h"

fv_status fv_plan_prune_pvtp(fv_plan *plan, const fv_prune_pvtp_params *p) {
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    for (int32_t k = 0, layer = p->layer; layer < plan->shape.n_layer; k++, layer += p->stride) {
        int32_t keep = fv_plan_share(1 - p->first - k * p->ratio, plan->shape.n_visual);
        int32_t n_edit = plan->prune.n_edit;
        fv_plan_drop(plan, layer, keep > 0 ? keep : 0);
        if (plan->prune.n_edit > n_edit) plan->capture[layer - 1] |= FV_CAPTURE_LAST_ROW;
    }
    return FV_OK;
}
