/* pack=quant: turns a layer's visual tokens into codes if codes, with the scale pairs of their
 * channels and the outliers kept exactly, are smaller than the rows. */
#include "policy/plan/contribute.h"
#include "policy/plan/packed_shape.h"

fv_status fv_plan_pack_quant(fv_plan *plan, const fv_pack_quant_params *p) {
    int32_t width = plan->shape.n_kv * plan->shape.d_head;
    plan->pack.text = FV_TEXT_RULE_OF(p);
    plan->pack.first_packed = fv_plan_packs_any(plan) && p->first_packed;
    if (fv_plan_text_only(plan, FV_STAGE_PACK)) return FV_OK;
    plan->pack.coded = true;
    plan->pack.outliers = p->outliers;
    plan->pack.bits = p->bits_4 ? 4 : 8;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) {
        plan->pack.layer[l] = (fv_plan_pack){.rank = {width, width}, .rank2 = {width, width}};
        if (!plan->prune.drop_visual_kv[l] && fv_plan_packs(plan, l, plan->visual[l]))
            plan->pack.any = true;
        else
            plan->pack.layer[l] = (fv_plan_pack){0};
    }
    plan->pack.block = plan->pack.any ? p->block : 0;
    plan->pack.first_packed = fv_plan_packs_any(plan) && p->first_packed;
    if (plan->pack.any) return FV_OK;
    plan->pack.coded = false;
    plan->pack.outliers = 0;
    plan->pack.bits = 0;
    fv_plan_note(plan, FV_STAGE_PACK, "no layer has enough visual tokens for codes to be smaller");
    return FV_OK;
}
