#ifndef FOVEA_MODEL_NET_HEADS_INTERNAL_H
#define FOVEA_MODEL_NET_HEADS_INTERNAL_H

/* HEADS of a model whose sliding layers have other heads than its full layers (Gemma 4). For the files of
 * the decoder only.
 *
 * Stores, plans, policies and hand-offs have rows of one shape, Hkv heads of D dimensions. A head of a
 * sliding layer has d = D / p dimensions. Up to p of them lie SIDE BY SIDE in one head of the store, as a
 * rotation wants its pairs D / 2 apart:
 *
 *     a head x in place s of p:    x[0 .. d/2) at s d/2,   x[d/2 .. d) at D/2 + s d/2
 *
 * A query has zeros in the other places, so its scores are those of its own head, and of attention's
 * output only its own place is taken. Where a layer has fewer heads of keys and values than the store, each
 * is held several times. The store of Gemma 4 31B (16 heads of 256, 4 of 512) has 8 of 512: full layers
 * hold each head twice, 9 % more than the layers would need by themselves. */
#include "model/net/decoder_internal.h"

/* Heads of a layer. */
typedef struct fv_heads {
    int32_t d, n_kv;
} fv_heads;

static inline fv_heads fv_heads_of(const fv_text_config *c, int32_t layer) {
    if (c->slide_d == 0) return (fv_heads){c->d_head, c->n_kv};
    return c->slides[layer] ? (fv_heads){c->slide_d, c->slide_kv}
                            : (fv_heads){c->d_head, c->full_kv};
}

/* Whether layers have heads of their own, and whether this one has other queries than the store. */
static inline bool fv_heads_vary(const fv_text_config *c) { return c->slide_d > 0; }
static inline bool fv_heads_placed(const fv_text_config *c, int32_t layer) {
    return c->slide_d > 0 && c->slides[layer] && c->slide_d != c->d_head;
}

/* Columns of the widest raw keys of a layer. */
static inline int32_t fv_heads_wide_kv(const fv_text_config *c) {
    int32_t slide = c->slide_d * c->slide_kv, full = c->d_head * c->full_kv;
    return slide > full ? slide : full;
}

/* Norms each raw head of d dimensions by `weight`, or without factors if that is absent. */
fv_status fv_heads_norm(fv_decoder *dec, fv_tensor raw, int32_t d, fv_tensor weight);

/* Places raw queries [n, H d] in y [n, H D], or raw keys or values [n, heads d] in y [n, Hkv D]. */
fv_status fv_heads_put_queries(fv_decoder *dec, int32_t layer, fv_tensor raw, fv_tensor y);
fv_status fv_heads_put_keys(fv_decoder *dec, int32_t layer, fv_tensor raw, fv_tensor y);

/* Takes raw [n, H d] out of attention's output o [n, H D]. */
fv_status fv_heads_take(fv_decoder *dec, int32_t layer, fv_tensor o, fv_tensor raw);

#endif
