/* pack=latent: which groups of layers hold coefficients, and of how many bits a token.
 *
 *   bytes of n tokens = 2 row_bits ceil(n / 16), to the next 64   <=   budget * 2 bytes * n * W,
 *
 * W the numbers of a token in all layers of the group (kernels/latent.h); with `bits`, row_bits is a
 * multiple of them. A group whose layers have
 * different visual tokens stays raw, as one token's coefficients are of all of them. */
#include "policy/plan/contribute.h"
#include "policy/plan/packed_shape.h"

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static bool same_rows(const fv_plan *plan, int32_t first, int32_t n) {
    for (int32_t e = 0; e < plan->prune.n_edit; e++)
        if (plan->prune.edit[e].layer > first && plan->prune.edit[e].layer < first + n)
            return false;
    for (int32_t l = first; l < first + n; l++)
        if (plan->prune.drop_visual_kv[l] || plan->visual[l] != plan->visual[first]) return false;
    return plan->visual[first] > 0;
}

static int32_t row_bits_of(const fv_plan *plan, int32_t first, int32_t n,
                           const fv_pack_latent_params *p) {
    const fv_plan_shape *s = &plan->shape;
    double raw = 2.0 * 2 * plan->visual[first] * n * s->n_kv * s->d_head;
    int32_t bits = fv_latent_row_bits((int64_t)(p->budget * raw + 1e-9), plan->visual[first]);
    if (p->bits == 0) return least(bits, FV_LATENT_BITS * s->latent_rank);
    return p->bits * least(bits / p->bits, s->latent_rank);
}

static void plan_group(fv_plan *plan, int32_t first, const fv_pack_latent_params *p) {
    const fv_plan_shape *s = &plan->shape;
    int32_t n = least(s->latent_layers, s->n_layer - first), width = s->n_kv * s->d_head;
    if (!same_rows(plan, first, n)) return;
    int32_t row_bits = row_bits_of(plan, first, n, p);
    if (row_bits == 0) return;
    for (int32_t l = first; l < first + n; l++)
        plan->pack.layer[l] = (fv_plan_pack){.rank = {width, width},
                                             .rank2 = {width, width},
                                             .back = l - first,
                                             .group = n,
                                             .row_bits = row_bits};
    plan->pack.any = true;
}

fv_status fv_plan_pack_latent(fv_plan *plan, const fv_pack_latent_params *p) {
    const fv_plan_shape *s = &plan->shape;
    if (fv_plan_text_only(plan, FV_STAGE_PACK)) return FV_OK;
    if (s->latent_layers == 0) {
        fv_plan_note(plan, FV_STAGE_PACK,
                     s->no_latent ? s->no_latent : "the checkpoint has no latent directions");
        return FV_OK;
    }
    if (s->n_span > 0 && s->span[0].first == 0) {
        fv_plan_note(plan, FV_STAGE_PACK,
                     "the prompt begins with an image, and its first token has to stay exact");
        return FV_OK;
    }
    plan->pack.latent = true;
    plan->pack.bits = (uint8_t)(p->bits ? p->bits : 16);
    for (int32_t l = 0; l < s->n_layer; l += s->latent_layers) plan_group(plan, l, p);
    plan->pack.first_packed = plan->pack.any && p->first_packed;
    if (plan->pack.any) return FV_OK;
    plan->pack.latent = false;
    plan->pack.bits = 0;
    fv_plan_note(
        plan, FV_STAGE_PACK,
        "no group of layers has the same visual tokens and, in the budget, a bit for each");
    return FV_OK;
}
