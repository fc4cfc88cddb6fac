#ifndef FOVEA_KERNELS_CPU_LANES_CAUSAL_CONV_H
#define FOVEA_KERNELS_CPU_LANES_CAUSAL_CONV_H

/* Causal depthwise convolution; compilers vectorize the loops over the channels of a block. */
#include "kernels/activations.h"
#include "kernels/cpu/inline.h"
#include "kernels/cpu/path.h"
#include "kernels/recurrent.h"

/* Rows of a sequence before its first, then those of x: row r of both, r from -(K - 1) on. */
static inline const float *conv_row(const fv_causal_conv_args *a, const fv_recurrent_seq *s,
                                    int32_t r) {
    if (r >= 0) return row_f32(&a->x, s->row0 + r);
    return s->state + (ptrdiff_t)(r + a->w.rows - 1) * a->x.cols;
}

/* n channels from c0 on; the number is a constant where a block is whole. */
static ALWAYS_INLINE void conv_tile(const fv_causal_conv_args *a, const fv_recurrent_seq *s,
                                    int32_t c0, int32_t n) {
    int32_t K = a->w.rows;
    for (int32_t r = 0; r < s->n_rows; r++) {
        float sum[FV_CONV_TILE] = {0}, *y = row_f32(&a->y, s->row0 + r) + c0;
        for (int32_t i = 0; i < K; i++) {
            const float *w = row_f32(&a->w, i) + c0, *x = conv_row(a, s, r - (K - 1) + i) + c0;
            for (int32_t c = 0; c < n; c++) sum[c] = fmaf(w[c], x[c], sum[c]);
        }
        for (int32_t c = 0; c < n; c++) sum[c] = act_silu(sum[c]);
        for (int32_t c = 0; c < n; c++) y[c] = sum[c];
    }
    for (int32_t j = 0; j < K - 1; j++) {
        const float *x = conv_row(a, s, s->n_rows - (K - 1) + j) + c0;
        float *state = s->state + (ptrdiff_t)j * a->x.cols + c0;
        for (int32_t c = 0; c < n; c++) state[c] = x[c];
    }
}

static void causal_conv(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_causal_conv_args *a = args;
    int64_t n_tile = div_up(a->x.cols, FV_CONV_TILE);
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        int32_t c0 = (int32_t)(i % n_tile) * FV_CONV_TILE, left = a->x.cols - c0;
        if (left >= FV_CONV_TILE)
            conv_tile(a, &a->seqs[i / n_tile], c0, FV_CONV_TILE);
        else
            conv_tile(a, &a->seqs[i / n_tile], c0, left);
    }
}

#endif
