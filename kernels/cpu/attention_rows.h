#ifndef FOVEA_KERNELS_CPU_ATTENTION_ROWS_H
#define FOVEA_KERNELS_CPU_ATTENTION_ROWS_H

/* Helpers of attention's products on an item's rows, for any path. */
#include <math.h>

#include "common/convert.h"
#include "kernels/cpu/attention_item.h"

static inline const float *attn_query(const attn_item *t, int32_t v) {
    return row_f32(&t->a->q, (int64_t)t->seq->row0 + t->row0 + v / t->group) +
           (size_t)(t->head0 + v % t->group) * t->D;
}

static inline float *attn_output(const attn_item *t, int32_t v) {
    return row_f32(&t->a->o, (int64_t)t->seq->row0 + t->row0 + v / t->group) +
           (size_t)(t->head0 + v % t->group) * t->D;
}

static inline int32_t attn_most_seen(const attn_item *t) {
    int32_t most = 0;
    for (int32_t v = 0; v < t->R; v++) most = t->n_seen[v] > most ? t->n_seen[v] : most;
    return most;
}

/* o = (o + 0) * c, and p = 0 for keys that a vector does not see. Skips o where c is 1: only the sign of
 * zeros would change, which later sums do not keep. */
static inline void attn_shrink(attn_item *t) {
    for (int32_t v = 0; v < t->R; v++) {
        float *o = t->o + (size_t)v * t->Dp, *p = t->s + (size_t)v * FV_KV_BLOCK, c = t->c[v];
        for (size_t d = 0; c != 1.0f && d < t->Dp; d++) o[d] = (o[d] + 0.0f) * c;
        for (int32_t j = t->n_seen[v]; j < FV_KV_BLOCK; j++) p[j] = 0.0f;
    }
}

/* Whether one copy of the values serves all vectors: rows that some vectors do not see are finite. */
static inline bool attn_rows_shared(const attn_item *t, const void *block, int32_t n) {
    int32_t least = n, most = attn_most_seen(t);
    for (int32_t v = 0; v < t->R; v++) least = t->n_seen[v] < least ? t->n_seen[v] : least;
    uint16_t any = 0;
    for (size_t i = (size_t)least * t->D; i < (size_t)most * t->D; i++) {
        uint16_t h = t->a->kv_dtype == FV_BF16 ? ((const uint16_t *)block)[i]
                                               : bf16_of_f32(widened(block, t->a->kv_dtype, i));
        any |= (h & 0x7f80) == 0x7f80;
    }
    return !any;
}

#endif
