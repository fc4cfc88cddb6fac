/* Counts the rows that went into and came out of each stage, from the tokens that layers ran and the store.
 * Pure function of both. */
#include "prefill-worker/prefill/stage_stats.h"

#include "kv/packed.h"

/* Number of rows of a segment that a layer holds in all heads, packed ones too. */
static uint64_t held_of(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv;
    const fv_kv_packed *packed = fv_kv_packed_of(kv, layer, seg);
    uint64_t rows = packed ? (uint64_t)packed->n_alive * (uint64_t)n_kv : 0;
    for (int32_t g = 0; g < n_kv; g++) rows += (uint64_t)fv_kv_held(kv, layer, g, seg);
    return rows;
}

static uint64_t held(const fv_kv *kv, int32_t layer) {
    return held_of(kv, layer, FV_SEG_VISUAL) + held_of(kv, layer, FV_SEG_TEXT);
}

/* Number of rows that were packed in a layer. */
static uint64_t packed_rows(const fv_kv *kv, int32_t layer) {
    uint64_t rows = 0;
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        const fv_kv_packed *packed = fv_kv_packed_of(kv, layer, (fv_kv_segment)seg);
        if (packed) rows += (uint64_t)packed->n_first * (uint64_t)fv_kv_get_shape(kv)->n_kv;
    }
    return rows;
}

static void add(fv_stage_stats_stage *s, uint64_t in, uint64_t out, bool acted) {
    s->entries_in += in;
    s->entries_out += out;
    s->n_layer += acted;
}

void fv_stage_stats_take(const fv_plan *plan, const int32_t *visual_tokens, const fv_kv *kv,
                         fv_stage_stats *out) {
    fv_stage_stats a = {.stage = {{0}}};
    const fv_choice *stage = plan->policy.stage;
    uint64_t encoded = (uint64_t)plan->shape.n_kv * (uint64_t)plan->shape.n_encoded;
    uint64_t n_kv = (uint64_t)plan->shape.n_kv, all = n_kv * (uint64_t)plan->shape.n_visual;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) {
        uint64_t visual = n_kv * (uint64_t)visual_tokens[l], kept = held(kv, l);
        a.visual_tokens_held[l] = (int32_t)((held_of(kv, l, FV_SEG_VISUAL) + n_kv / 2) / n_kv);
        uint64_t ran = visual + n_kv * (uint64_t)plan->shape.n_text;
        if (plan->condense.acts) add(&a.stage[FV_STAGE_CONDENSE], encoded, all, true);
        if (stage[FV_STAGE_PRUNE].method) add(&a.stage[FV_STAGE_PRUNE], all, visual, visual < all);
        if (stage[FV_STAGE_LAZY].method)
            add(&a.stage[FV_STAGE_LAZY], visual, visual, fv_kv_borrows(kv, l, FV_SEG_VISUAL));
        if (stage[FV_STAGE_SELECT].method) add(&a.stage[FV_STAGE_SELECT], ran, kept, kept != ran);
        uint64_t rows = packed_rows(kv, l);
        if (stage[FV_STAGE_PACK].method && rows) add(&a.stage[FV_STAGE_PACK], rows, rows, true);
    }
    *out = a;
}
