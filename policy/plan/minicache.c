/* pack=minicache: merges layers (2p, 2p + 1) from `start` on if both have the same visual tokens.
 * How many vectors stay unmerged depends on data; if nothing would be gained, both layers stay raw,
 * so the raw rows are the bound. */
#include "policy/plan/contribute.h"
#include "policy/plan/packed_shape.h"

/* Returns whether tokens are dropped before the second layer, or after the first. */
static bool rows_differ(const fv_plan *plan, int32_t second) {
    for (int32_t e = 0; e < plan->prune.n_edit; e++)
        if (plan->prune.edit[e].layer == second) return true;
    return plan->prune.drop_visual_kv[second] != plan->prune.drop_visual_kv[second - 1];
}

static void plan_pair(fv_plan *plan, int32_t l) {
    int32_t width = plan->shape.n_kv * plan->shape.d_head;
    if (plan->prune.drop_visual_kv[l] || rows_differ(plan, l + 1)) return;
    for (int32_t i = 0; i < 2; i++)
        plan->pack.layer[l + i] =
            (fv_plan_pack){.rank = {width, width}, .rank2 = {width, width}, .back = i};
    if (fv_plan_packs(plan, l, plan->visual[l]))
        plan->pack.any = true;
    else
        plan->pack.layer[l] = plan->pack.layer[l + 1] = (fv_plan_pack){0};
}

fv_status fv_plan_pack_minicache(fv_plan *plan, const fv_pack_minicache_params *p) {
    int32_t start = p->start;
    if (fv_plan_text_only(plan, FV_STAGE_PACK)) return FV_OK;
    plan->pack.merged = true;
    plan->pack.bits = 16;
    for (int32_t l = start + start % 2; l + 1 < plan->shape.n_layer; l += 2) plan_pair(plan, l);
    if (plan->pack.any) {
        plan->exact_counts = false;
        plan->pack.block = p->block;
        plan->pack.first_packed = p->first_packed;
        return FV_OK;
    }
    plan->pack.merged = false;
    plan->pack.bits = 0;
    fv_plan_note(plan, FV_STAGE_PACK,
                 "no two layers 2p and 2p + 1 from `start` on have the same visual tokens and "
                 "enough of them to be smaller merged");
    return FV_OK;
}
