/* evict=vta: which layers are annealed, and which layer's attention ranks their tokens.
 *
 * A layer's tokens are ranked in the layer before the one where they were last chosen by attention,
 * T[l] of ST3 (arXiv 2412.20105, algorithm 3). Without pruning by attention, vta ranks at its own
 * point, `layer`. Layers before the first such point have no ranking and keep their tokens, or with
 * rank_by_first_tap use the first ranking.
 *
 * A pruner that decides by data ranks first in the first layer that it captures, and again in the
 * layer after which tokens are dropped (prefill-worker/prefill/rows.c): VisiPruner masks the
 * earlier layers, so they could not rank.
 *
 * Layers that share keys hold the same tokens, so a block is annealed by its source layer's
 * schedule. A block never spans a point where tokens are chosen again; if it spans the first point,
 * it keeps its tokens as its source layer does. The same holds for two merged layers, with the
 * first as the source. Layers that share coefficients hold different numbers of tokens, each by its
 * own ranking, but all drop them in the same order (prefill-worker/pack/latent.c). */
#include "policy/plan/vta.h"

#include <math.h>

#include "policy/plan/contribute.h"

/* beta(t), equation 7 of ST3: cosine cos(pi t / 2 tau) or linear 1 - t / tau, both 0 from tau on;
 * exponential exp(-t / sigma). */
double fv_vta_share(const fv_evict_vta_params *p, int32_t t) {
    if (p->beta_exponential) return exp(-t / p->sigma);
    if (t >= p->tau) return 0;
    double part = (double)t / p->tau;
    return p->beta_linear ? 1 - part : cos(acos(-1.0) / 2 * t / p->tau);
}

static double share(const fv_plan *plan, int32_t t) {
    return fv_vta_share(&plan->params[FV_STAGE_EVICT].evict_vta, t);
}

/* The last layer, before `layer`, after which tokens were chosen by attention; -1: none. */
static int32_t chosen_after(const fv_plan *plan, int32_t layer) {
    int32_t after = -1;
    for (int32_t e = 0; e < plan->prune.n_edit && plan->prune.edit[e].layer <= layer; e++) {
        int32_t before = plan->prune.edit[e].layer - 1;
        if (plan->prune.edit[e].by_data) continue;
        if (before >= 0 && plan->capture[before] & FV_CAPTURE_LAST_ROW) after = before;
    }
    return after;
}

/* The first layer whose attention ranks; without a capture by a pruner, vta's own, which must have
 * tokens. */
static int32_t first_rank(fv_plan *plan, int32_t own) {
    int32_t ranked = -1;
    if (plan->prune.n_edit && plan->prune.edit[0].by_data) ranked = plan->prune.edit[0].layer - 1;
    for (int32_t l = plan->shape.n_layer - 1; l >= 0; l--) {
        int32_t after = chosen_after(plan, l);
        if (after >= 0) ranked = after;
    }
    for (own--; own > 0 && plan->visual[own] == 0; own--) {
    }
    if (ranked >= 0) fv_plan_clear_mapped(plan, FV_STAGE_EVICT);
    return ranked >= 0 ? ranked : own;
}

/* order=ema needs the importance that expand=attention maintains. */
static fv_status check_order(const fv_plan *plan, const fv_evict_vta_params *p) {
    const fv_method_info *expand = plan->policy.stage[FV_STAGE_EXPAND].method;
    if (p->order_prefill || (expand && expand->id == FV_METHOD_EXPAND_attention)) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "policy: evict=vta,order=ema needs the importance from expand=attention: add "
                   "pack=svd;expand=attention, or use order=prefill");
}

static void capture_rankings(fv_plan *plan, int32_t first) {
    plan->capture[first] |= FV_CAPTURE_LAST_ROW;
    for (int32_t e = 0; e < plan->prune.n_edit; e++)
        if (plan->prune.edit[e].by_data)
            plan->capture[plan->prune.edit[e].layer - 1] |= FV_CAPTURE_LAST_ROW;
}

fv_status fv_plan_evict_vta(fv_plan *plan, const fv_evict_vta_params *p) {
    FV_TRY(check_order(plan, p));
    int32_t first = first_rank(plan, p->layer);
    if (fv_plan_text_only(plan, FV_STAGE_EVICT)) return FV_OK;
    for (int32_t l = p->shallow_keep ? first + 1 : 0; l < plan->shape.n_layer; l++) {
        int32_t after = chosen_after(plan, l),
                source_layer =
                    plan->share.source_layer[plan->pack.latent ? l : fv_plan_pair(plan, l)];
        if (plan->visual[l] == 0 || plan->prune.drop_visual_kv[l]) continue;
        plan->evict.rank_from[l] = source_layer < l ? plan->evict.rank_from[source_layer]
                                   : after >= 0     ? after
                                                    : first;
        if (plan->evict.rank_from[l] >= 0) plan->evict.share = share;
    }
    plan->evict.by_importance = plan->evict.share && p->order_ema;
    if (plan->evict.share)
        capture_rankings(plan, first);
    else
        fv_plan_note(plan, FV_STAGE_EVICT, "no ranked layer holds visual tokens");
    return FV_OK;
}
