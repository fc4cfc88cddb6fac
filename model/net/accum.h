#ifndef FOVEA_MODEL_NET_ACCUM_H
#define FOVEA_MODEL_NET_ACCUM_H

/* A store with an ACCUMULATOR of attention scores for each entry (common/accum.h), which evicts the
 * entries with the lowest scores, head by head.
 *
 *   prefill --fv_accum_put--> the prompt's accumulator --> sent with its entries in the hand-off
 *   step    fv_accum_evict, then --fv_accum_add_captures--> captures --fv_accum_store--> accumulator
 *
 * An accumulator has one number for each query head of the entry's KV head. Sums grow token by
 * token in the order of kernels/ops.h, however forward batches are cut; entries are chosen by the
 * mean over query heads. An accumulator takes about a hundredth of its entry's bytes. Like
 * positions, accumulators are not charged to the pool. Uncompressed entries only, and no lazy
 * layers.
 *
 * With FV_ACCUM_VALUE the accumulator is one number that the method gave the token, and no step
 * changes it.
 *
 * Runs on the thread that owns the store. Without an accumulator, the functions below do
 * nothing. */
#include "common/arena.h"
#include "model/net/decoder.h"

/* Adds the column to a store that has no tokens yet, for `width` query heads per KV head. NONE adds
 * nothing. */
void fv_accum_init(fv_kv *kv, fv_accum_kind kind, int32_t width);

static inline fv_accum_kind fv_accum_kind_of(const fv_kv *kv) {
    return fv_kv_get_sequence(kv)->accum;
}
static inline int32_t fv_accum_width(const fv_kv *kv) {
    return (int32_t)(fv_kv_column_bytes(kv, FV_KV_ACCUM) / sizeof(float));
}

/* Accumulators of a head's segment, [len, width]: borrowed like positions, and writable. */
static inline float *fv_accum_values(const fv_kv *kv, int32_t layer, int32_t head,
                                     fv_kv_segment seg) {
    return (float *)fv_kv_values(kv, layer, head, seg, FV_KV_ACCUM);
}

/* Sets the accumulators of a layer's rows to the sums of a capture over the prompt's rows: p [H,
 * n_key], visual keys at column 0 and text keys at `text`, in the order of the store. */
void fv_accum_put(fv_kv *kv, int32_t layer, const float *p, int32_t text, int32_t n_key);

/* Adds one capture per layer to a step's sequence, whose kv, n_rows and wanted are set, and raises
 * `wanted` to the number of captured rows. `last`: the last row of a turn is among them. */
fv_status fv_accum_add_captures(fv_arena *arena, int32_t n_head, bool last, fv_forward_seq *seq);

/* Adds the captures to the accumulators; call it after the forward batch, when the backend has
 * synced. */
void fv_accum_store(const fv_forward_seq *seq);

/* Call before a token runs: evicts from each head with more than rule->most rows all but
 * rule->left. Of equal rows the one of the lower position stays. With `pages`, blocks that the rule
 * leaves without use return to the pool: at most one row may come before the next call. */
fv_status fv_accum_evict(fv_kv *kv, const fv_accum_rule *rule, bool pages);

#endif
