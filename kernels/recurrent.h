#ifndef FOVEA_KERNELS_RECURRENT_H
#define FOVEA_KERNELS_RECURRENT_H

/* Operations of Gated DeltaNet (arXiv 2412.06464), a layer that keeps a state of fixed size for each
 * sequence in place of keys and values. Tokens run one after the other, in prefill too: a token's bits
 * do not depend on how its prompt is cut into passes. Both operations update the states in place; rows
 * of a sequence are in the order of its tokens. */
#include "kernels/mathf.h"
#include "kernels/ops.h"

enum { FV_DELTA_KEY_MAX = 256, FV_DELTA_TILE = 64, FV_CONV_TAPS_MAX = 8, FV_CONV_TILE = 64 };

/* A sequence's rows, and its state: F32 on the device. */
typedef struct fv_recurrent_seq {
    int32_t row0, n_rows;
    float *state;
} fv_recurrent_seq;

/* Causal depthwise convolution over a sequence's tokens, then SiLU. With x_t the row of token t, and
 * tokens before the sequence's first row in the state:
 *     y[t,c] = silu(s),   s = 0;   for i = 0 .. K-1: s = fma(w[i,c], x[t - (K-1) + i, c], s)
 * The state [K-1, C] holds the last K - 1 rows of x, the oldest first; zeros ahead of a prompt. */
struct fv_causal_conv_args {
    fv_tensor x, y; /* [M, C], different memory */
    fv_tensor w;    /* [K, C] F32, 2 <= K <= FV_CONV_TAPS_MAX */
    int32_t n_seq;
    const fv_recurrent_seq *seqs; /* [n_seq] on the host */
};

/* The gated delta rule. Value head h has state S [Dk, Dv] and uses key head g = h / (Hv / Hk). For each
 * token, with |v| = sqrt(dot(v, v) + 1e-6) and the canonical dot product:
 *     q = (query_g / |query_g|) / sqrt(Dk);   k = key_g / |key_g|       1 / |v| and 1 / sqrt(Dk) are
 *                                                                       rounded, then multiplied
 *     alpha = exp(-(rate[h] * softplus(a[h] + shift[h])));   beta = 1 / (1 + exp(-b[h]))
 * and for each of its columns c, with sums over i = 0 .. Dk - 1 in order:
 *     m = 0;   m = fma(S[i,c] * alpha, k[i], m)
 *     e = (value[h,c] - m) * beta
 *     S[i,c] = fma(k[i], e, S[i,c] * alpha)
 *     o[h,c] = 0;   o[h,c] = fma(S[i,c], q[i], o[h,c])
 * The state is [Hv, Dk, Dv]. */
struct fv_delta_rule_args {
    fv_tensor qkv;         /* [M, 2 Hk Dk + Hv Dv]: queries, keys, values, each head by head */
    fv_tensor a, b;        /* [M, Hv] F32 */
    fv_tensor rate, shift; /* [1, Hv] F32 */
    fv_tensor o;           /* [M, Hv Dv] */
    int32_t n_key, n_value, d_key,
        d_value; /* d_key at most FV_DELTA_KEY_MAX, both multiples of 16 */
    int32_t n_seq;
    const fv_recurrent_seq *seqs; /* [n_seq] on the host */
};

/* ln(1 + e^x), x itself above 20. The quotient corrects ln(1 + e) for the rounding of 1 + e. */
FV_ANYWHERE static inline float softplus_f32(float x) {
    if (x > 20.0f) return x;
    float e = exp_f32(x), u = 1.0f + e;
    return u == 1.0f ? e : log_f32(u) * e / (u - 1.0f);
}

#endif
