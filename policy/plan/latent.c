/* pack=latent: which groups of layers hold coefficients, and with how many bits per token.
 *
 *   bytes of n tokens = 2 row_bits ceil(n / 16), rounded up to 64
 *                    <= budget * 2 bytes * W * sum of n_l over the layers,
 *
 * W: numbers of a token in a layer (packed/latent.h); n_l: visual tokens of layer l; n: those of
 * the group's first layer that has any. Later layers may hold fewer; a token has one set of
 * coefficients for all layers that hold it. With `bits`, row_bits is a multiple of it. With
 * `error`, row_bits is no more than needed to reach it by the calibration's variances, if any
 * number of bits does. With residual=auto a group may also have directions of its own, counted as
 * if it had the most. If a prompt begins with an image, each layer also holds the first token's
 * uncompressed key and value. */
#include "policy/plan/contribute.h"
#include "policy/plan/packed_shape.h"

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t held(const fv_plan *plan, int32_t l) {
    return plan->prune.drop_visual_kv[l] ? 0 : plan->visual[l];
}

/* Finds layers [first, end) that hold visual tokens, in the group that begins with `from`. */
static bool holding(const fv_plan *plan, int32_t from, int32_t *first, int32_t *end) {
    int32_t last = least(from + plan->shape.latent_layers, plan->shape.n_layer);
    *first = *end = from;
    for (int32_t l = from; l < last; l++) {
        if (held(plan, l) == 0) continue;
        if (*end == from) *first = l;
        *end = l + 1;
    }
    return *end > from;
}

/* The fewest bits that reach the error, or `bits` if no number does. The table may come from
 * another worker. */
static int32_t bits_for_error(const fv_plan_shape *s, int32_t first, double error, int32_t bits) {
    int32_t groups = (s->n_layer + s->latent_layers - 1) / s->latent_layers;
    int32_t group = first / s->latent_layers, step = error > 0 ? fv_latent_step(error) : 0;
    if (step == 0 || s->n_latent_steps != (size_t)groups * FV_LATENT_STEPS) return bits;
    uint32_t fewest = s->latent_steps[group * FV_LATENT_STEPS + step - 1];
    return fewest > 0 && fewest < (uint32_t)bits ? (int32_t)fewest : bits;
}

static int32_t row_bits_of(const fv_plan *plan, int32_t first, int32_t end,
                           const fv_pack_latent_params *p) {
    const fv_plan_shape *s = &plan->shape;
    double raw = 0;
    for (int32_t l = first; l < end; l++) raw += 2.0 * 2 * held(plan, l) * s->n_kv * s->d_head;
    int32_t bits = fv_latent_row_bits((int64_t)(p->budget * raw + 1e-9), held(plan, first));
    if (p->bits == 0) {
        bits = least(bits, FV_LATENT_BITS * s->latent_rank);
        return bits_for_error(s, first, p->error, bits);
    }
    return p->bits * least(bits / p->bits, s->latent_rank);
}

static void plan_group(fv_plan *plan, int32_t from, const fv_pack_latent_params *p) {
    const fv_plan_shape *s = &plan->shape;
    int32_t first, end, width = s->n_kv * s->d_head, n[FV_PLAN_MAX_LAYERS] = {0};
    if (!holding(plan, from, &first, &end)) return;
    int32_t row_bits = row_bits_of(plan, first, end, p);
    if (row_bits == 0) return;
    for (int32_t l = first; l < end; l++) {
        n[l - first] = held(plan, l);
        plan->pack.layer[l] = (fv_plan_pack){.rank = {width, width},
                                             .rank2 = {width, width},
                                             .back = l - first,
                                             .group = end - first,
                                             .row_bits = row_bits,
                                             .n_own = p->residual_auto ? p->residual_rank : 0};
    }
    if (fv_plan_latents_pay(plan, first, n))
        plan->pack.any = true;
    else
        for (int32_t l = first; l < end; l++) plan->pack.layer[l] = (fv_plan_pack){0};
}

fv_status fv_plan_pack_latent(fv_plan *plan, const fv_pack_latent_params *p) {
    const fv_plan_shape *s = &plan->shape;
    if (p->bits > 0 && p->error > 0)
        return FV_FAIL(FV_EINVAL,
                       "pack=latent: error says how many bits by variance, and with bits=%d "
                       "each direction has as many: leave one out",
                       p->bits);
    plan->pack.text = FV_TEXT_RULE_OF(p);
    plan->pack.first_packed = fv_plan_packs_any(plan) && p->first_packed;
    if (fv_plan_text_only(plan, FV_STAGE_PACK)) return FV_OK;
    if (s->latent_layers == 0) {
        fv_plan_note(plan, FV_STAGE_PACK,
                     s->no_latent ? s->no_latent : "the checkpoint has no latent directions");
        return FV_OK;
    }
    if (plan->select.count && least(s->latent_layers, s->n_layer) > 1) {
        fv_plan_note(
            plan, FV_STAGE_PACK,
            "select leaves each layer tokens of its own, and the directions are of several "
            "layers together: use those of `fovea calibrate --latent --latent-layers 1`");
        return FV_OK;
    }
    plan->pack.latent = true;
    plan->pack.exact = s->n_span > 0 && s->span[0].first == 0;
    plan->pack.low[FV_PACKED_K] = plan->pack.low[FV_PACKED_V] = 1;
    plan->pack.bits = (uint8_t)(p->bits ? p->bits : 16);
    plan->pack.coded_keys = p->keys_codes;
    for (int32_t l = 0; l < s->n_layer; l += s->latent_layers) plan_group(plan, l, p);
    plan->pack.first_packed = fv_plan_packs_any(plan) && p->first_packed;
    if (plan->pack.any) return FV_OK;
    plan->pack.latent = plan->pack.exact = plan->pack.coded_keys = false;
    plan->pack.bits = 0;
    fv_plan_note(plan, FV_STAGE_PACK,
                 "no group of layers has, in the budget, a bit for each token");
    return FV_OK;
}
