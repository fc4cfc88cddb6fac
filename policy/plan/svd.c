/* pack=svd: which layers' visual tokens are factored, and at what rank.
 *
 * A layer is factored if two factors are smaller than their matrix by `gain`:
 *     C = n HD / (R (n + HD))        AttentionPack, table 1; R the larger of the two ranks
 * Layers with few rows after pruning stay raw. Text is handled separately: the paper finds that its
 * values need a higher rank, and factors only its keys (LongBench, R = 64). Or text is in codes
 * (text.c). */
#include "policy/plan/contribute.h"
#include "policy/plan/decode.h"
#include "policy/plan/packed_shape.h"

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- text -------------------------------------------------------------------------------- */

static uint8_t bits_of(const fv_pack_svd_params *p) { return p->bits_4 ? 4 : p->bits_8 ? 8 : 16; }

static fv_text_keys text_keys_of(const fv_pack_svd_params *p) {
    if (!p->compress_text_keys) return (fv_text_keys){0};
    return (fv_text_keys){.rank = p->rank_text,
                          .bits = bits_of(p),
                          .block = p->block,
                          .again = p->recompress,
                          .gain = p->gain,
                          .energy = p->energy};
}

static fv_text_rule text_rule_of(const fv_pack_svd_params *p) {
    return fv_text_rule_of(!p->compress_text_all, true, p->bits_text_4, p->recompress);
}

void fv_decode_pack_svd(fv_decode_plan *decode, const fv_pack_svd_params *p, int32_t n_prompt) {
    (void)n_prompt;
    decode->text_keys = text_keys_of(p);
    decode->text = text_rule_of(p);
}

fv_packed_shape fv_text_keys_shape(const fv_text_keys *keys, fv_packed_kind kind, int32_t n,
                                   int32_t n_kv, int32_t d_head, fv_dtype dtype) {
    int32_t rank = kind == FV_PACKED_K ? least(least(keys->rank, n), n_kv * d_head) : 0;
    return (fv_packed_shape){
        .form = FV_PACKED_LOWRANK,
        .kind = kind,
        .n = n,
        .n_kv = n_kv,
        .d_head = d_head,
        .dtype = dtype,
        .lowrank = {.rank = rank, .rank2 = rank, .bits = kind == FV_PACKED_K ? keys->bits : 16}};
}

uint64_t fv_text_keys_bytes(const fv_text_keys *keys, int32_t n, int32_t n_kv, int32_t d_head,
                            fv_dtype dtype, bool own) {
    uint64_t bytes = 0;
    for (int k = own ? FV_PACKED_K : FV_PACKED_V; n > 0 && k < 2; k++) {
        fv_packed_shape s = fv_text_keys_shape(keys, (fv_packed_kind)k, n, n_kv, d_head, dtype);
        bytes += fv_packed_bytes(&s);
    }
    return bytes;
}

bool fv_text_keys_pack(const fv_text_keys *keys, int32_t n, int32_t width) {
    int32_t rank = least(least(keys->rank, n), width);
    return rank > 0 && fv_packed_gain(n, rank, width) >= keys->gain;
}

/* If the number of a layer's text rows depends on data, each layer decides when it is known. */
static void plan_text(fv_plan *plan, const fv_pack_svd_params *p) {
    const fv_plan_shape *s = &plan->shape;
    fv_text_keys keys = text_keys_of(p);
    bool known = !plan->select.count && !s->text_bound;
    if (keys.rank == 0) return;
    if (!known ||
        fv_text_keys_pack(&keys, s->n_text - s->n_answer - p->first_packed, s->n_kv * s->d_head))
        plan->pack.text_keys = keys;
}

/* ---- the plan ---------------------------------------------------------------------------- */

fv_status fv_plan_pack_svd(fv_plan *plan, const fv_pack_svd_params *p) {
    plan_text(plan, p);
    plan->pack.text = text_rule_of(p);
    if (!p->compress_text_keys && fv_plan_text_only(plan, FV_STAGE_PACK)) return FV_OK;
    int32_t k = p->rank_k, v = p->rank_v;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) {
        plan->pack.layer[l] = (fv_plan_pack){.rank = {k, v}, .rank2 = {k, v}};
        if (!plan->prune.drop_visual_kv[l] && fv_plan_packs(plan, l, plan->visual[l]))
            plan->pack.bits = bits_of(p);
        else
            plan->pack.layer[l] = (fv_plan_pack){0};
    }
    plan->pack.any = plan->pack.bits > 0;
    plan->pack.first_packed = fv_plan_packs_any(plan) && p->first_packed;
    if (fv_plan_packs_any(plan))
        plan->pack.block = p->block;
    else
        fv_plan_note(plan, FV_STAGE_PACK,
                     "no layer has enough visual tokens for factors of this rank to be smaller");
    return FV_OK;
}
