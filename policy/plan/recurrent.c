/* Policies that models with recurrent layers refuse. Methods act on the attention of its layers alone: tokens
 * that are dropped before a layer do not enter its recurrent layers, and those that ran stay in their
 * state. Pure function, any thread. */
#include "policy/plan/contribute.h"

static fv_status refuse(const fv_plan *plan, fv_stage stage, const char *what,
                        const char *instead) {
    return FV_FAIL(FV_EINVAL, "policy: %s=%s%s: this model has recurrent layers, %s",
                   fv_stage_name(stage), plan->policy.stage[stage].method->name, what, instead);
}

fv_status fv_plan_check_recurrent(const fv_plan *plan) {
    for (int32_t i = 0; i < plan->prune.n_edit; i++) {
        if (plan->prune.edit[i].masks)
            return refuse(plan, FV_STAGE_PRUNE, ",mode=mask",
                          "whose state holds masked tokens too: use mode=drop");
        if (plan->prune.edit[i].lookahead)
            return refuse(
                plan, FV_STAGE_PRUNE, "",
                "which run ahead of the attention by which it ranks: use prune=pvtp, which "
                "ranks in the layer before");
    }
    if (plan->pack.first_packed)
        return refuse(plan, FV_STAGE_PACK, ",first=packed",
                      "in whose state the prompt's last token is already: use first=raw");
    return FV_OK;
}
