/* pack=quant: which layers' visual tokens become codes: all that have so many that codes, with the
 * pairs of their channels and what is kept as it is, are smaller than the rows. */
#include "policy/plan/contribute.h"
#include "policy/plan/packed_shape.h"

fv_status fv_plan_pack_quant(fv_plan *plan, const fv_pack_quant_params *p) {
    int32_t width = plan->shape.n_kv * plan->shape.d_head;
    if (fv_plan_text_only(plan, FV_STAGE_PACK)) return FV_OK;
    plan->pack_coded = true;
    plan->pack_outliers = p->outliers;
    plan->pack_bits = p->bits_4 ? 4 : 8;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) {
        plan->pack[l] = (fv_plan_pack){.rank = {width, width}, .rank2 = {width, width}};
        if (!plan->forget[l] && fv_plan_packs(plan, l, plan->visual[l]))
            plan->packs = true;
        else
            plan->pack[l] = (fv_plan_pack){0};
    }
    plan->pack_block = plan->packs ? p->block : 0;
    plan->first_packed = plan->packs && p->first_packed;
    if (plan->packs) return FV_OK;
    plan->pack_coded = false;
    plan->pack_outliers = 0;
    plan->pack_bits = 0;
    fv_plan_note(plan, FV_STAGE_PACK, "no layer has enough visual tokens for codes to be smaller");
    return FV_OK;
}
