/* prune=pdrop: three steps, each a share of every image's initial tokens. A step ranks by
 * look-ahead attention in its own layer, so it needs no capture. */
#include "policy/plan/contribute.h"

fv_status fv_plan_prune_pdrop(fv_plan *plan, const fv_prune_pdrop_params *p) {
    const int32_t layer[3] = {p->second, p->third, p->fourth};
    double share = 1;
    for (int s = 1; s < 3; s++)
        if (layer[s] < layer[s - 1])
            return FV_FAIL(FV_EINVAL,
                           "policy: prune=pdrop: stages begin at layers %d and %d: they "
                           "must ascend",
                           layer[s - 1], layer[s]);
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    for (int s = 0; s < 3; s++) {
        share *= p->ratio;
        if (s < 2 && layer[s + 1] == layer[s]) continue; /* with few layers, stages may coincide */
        int32_t n = plan->prune.n_edit;
        fv_plan_drop(plan, layer[s], fv_plan_share_of_images(&plan->shape, share));
        if (plan->prune.n_edit > n) plan->prune.edit[n].share = share;
    }
    for (int32_t e = 0; e < plan->prune.n_edit; e++) plan->prune.edit[e].lookahead = true;
    plan->prune.renumbers = plan->prune.n_edit > 0;
    return FV_OK;
}
