#ifndef FOVEA_KERNELS_OPS_H
#define FOVEA_KERNELS_OPS_H

/* The mathematics of the forward pass, behind one const table per backend.
 *
 * Model code calls operations through this table and includes no device header. The CPU table is
 * complete and is the specification: its plain C version defines the bits, its AVX2, AVX-512 and AMX
 * versions give the same bits, and other backends are compared with it.
 *
 * THE CANONICAL DOT PRODUCT. Every sum over a contracted dimension of length K is
 *     acc[i] = 0, i < 16;   for k = 0, 16, 32, ...: acc[i] = fma(x[k+i], w[k+i], acc[i])
 *     for s = 8, 4, 2, 1:   acc[i] += acc[i + s], i < s;      the result is acc[0]
 * with x and w widened to f32 and padded with zeros to a multiple of 16. The result does not
 * depend on how many rows are computed together, on chunks, on other sequences of a batch or on
 * threads: the same row gives the same bits alone and among others. Sums of one vector
 * (norms, softmax denominators) are the dot product with ones, formed in the same lanes
 * and the same tree with acc[i] = acc[i] + x[k+i].
 *
 * THE CANONICAL DOT PRODUCT IN BF16 of a backend that computes in FV_COMPUTE_BF16 has the order
 * of the instruction TDPBF16PS. x and w are rounded to bf16, to nearest even, and padded with zeros
 * to a multiple of 32; acc is f32:
 *     acc = 0;   for k = 0, 32, 64, ...:
 *         even = odd = 0
 *         for i = 0, 2, ... 30:  even = fma(x[k+i], w[k+i], even)
 *                                odd = fma(x[k+i+1], w[k+i+1], odd)
 *         acc = acc + (even + odd)
 * Each operation rounds to nearest even. Subnormal operands, acc among them, count as zeros of
 * their sign, and a result becomes a zero of its sign where it is below 2^-126 after it was rounded
 * to 24 bits with an unbounded exponent (x86: DAZ and FTZ). All NaNs count as equal. acc may be
 * stored and loaded between two steps. This result, too, does not depend on rows, chunks, neighbours
 * and threads.
 *
 * THE DOT PRODUCT IN INT8 is used for weights of type FV_INT8 without groups, whatever the backend computes in. Each row
 * of x is quantized by itself:
 *     a = max |x[k]|;   scale_x = a / 127;   q[k] = rint(x[k] * (127 / a)), to nearest even
 * in f32, one rounding per operation; q = 0 and scale_x = 0 where a < 2^-100, and scale_x = NaN with
 * q = 0 where a is not finite. With K at most FV_INT8_MAX_K the sum of q[k] w[k] is exact in 32 bits,
 * so its order does not matter. The result is
 *     ((f32) sum * scale_x) * scale_w        scale_w of the row of w
 *
 * THE DOT PRODUCT IN INT8 WITH SCALES ALONG K is used, whatever the backend computes in, for weights of type FV_INT8 in
 * groups of 32 or 16 without `min` and `table` (GGUF's Q8_0, Q5_0 and Q6_K, the output head with --weights), and for
 * those with `integers`: of type FV_INT4 (--weights int4 and int4-128, AWQ, GPTQ, GGUF's Q4_0 and Q4_K) and of type
 * FV_INT8 in groups of 16 or a multiple of 32 (GPTQ in 8 bits, GGUF's Q5_K). Each 32 numbers of a row of x are quantized
 * like a row above, and padded with zeros; sums are exact, and the result is f32:
 *     acc = 0;   for g = 0, 1, ...: acc = fma(scale_w[g'] * scale_x[g"], (f32) sum_g, acc)
 * with sum_g the sum of q[k] w[k] over 32 columns, or 16 if w has groups of 16, in group g' of w and group g" of x; w of
 * 4 bits is the integer - 8. The product of scales and the fma round once each. A weight with `offset` then adds to y,
 * after the bias, the canonical dot product of
 *     offset[g']   and   t[g'], the canonical sum of x[k] (not quantized) over the columns of group g' of w.
 *
 * Other weights in groups of integers are decoded to bf16 (kernels/tensor.h), and the product is the canonical one
 * in bf16, whatever the backend computes in. Where the weight has an `order`, k counts the weight's columns, and
 * x[order[k]] is multiplied.
 *
 * ATTENTION is summed over fixed blocks of FV_KV_BLOCK rows, counted from the start of each
 * segment, in the order of the segments (fv_attn_args).
 *
 * Rules for every operation: arguments in one struct; matrices are fv_tensor; activations are
 * of the backend's `act` type (the CPU's is F32), residual streams and inputs may be F32;
 * weights and biases of any dtype; zero rows is legal and does nothing; inputs and outputs do
 * not overlap unless said so. Shapes that contradict each other are the caller's bug (assert); a
 * dtype that the backend does not support returns FV_EUNSUPPORTED. Letters: M rows, K in, N out, H
 * query heads, Hkv KV heads, D head dim. One thread calls a backend at a time. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/peer.h"
#include "common/status.h"
#include "kernels/tensor.h"
#include "packed/part.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_backend fv_backend;

/* The type of canonical dot products. */
typedef enum fv_compute { FV_COMPUTE_F32 = 0, FV_COMPUTE_BF16, FV_N_COMPUTE } fv_compute;

/* "f32", "bf16": as in options and reports. */
static inline const char *fv_compute_name(fv_compute c) {
    return c == FV_COMPUTE_F32 ? "f32" : "bf16";
}

/* ---- linear ---------------------------------------------------------------------------- */

enum { FV_LINEAR_MAX_PARTS = 3, FV_INT8_MAX_K = 65536 };

/* y = x w^T + bias          [M, N] = [M, K] x [N, K]^T
 * accumulate:  y = (x w^T + bias) + y     (the residual sum)
 * In bf16, too, bias and y are f32, with subnormal numbers. */
typedef struct fv_linear_part {
    fv_tensor w;    /* [N, K], contiguous, any dtype; parts of one call may have several */
    fv_tensor bias; /* [1, N] or absent */
    fv_tensor y;    /* [M, N] */
    bool accumulate;
} fv_linear_part;

/* Several layers that read the same x (q, k and v; gate and up) in one pass. Each row of a part's y
 * depends on that part and that row of x only. */
typedef struct fv_linear_args {
    fv_tensor x; /* [M, K] */
    bool in_f32; /* computes in f32 even on a bf16 backend, for factors; all weights are F32 */
    int32_t n_part;
    fv_linear_part part[FV_LINEAR_MAX_PARTS];
} fv_linear_args;

/* y = x w, a weighted sum of rows of w          [M, N] = [M, K] x [K, N]
 * Not the canonical dot product: K runs along the rows of w, and each y is one chain,
 *     y[m,n] = 0;   for k = 0, 1, ...: y[m,n] = fma(x[m,k], w[k,n], y[m,n])
 * as attention sums its values. No forward pass has weights in this layout; factors do. */
typedef struct fv_matmul_nn_args {
    fv_tensor x; /* [M, K] */
    fv_tensor w; /* [K, N], any dtype */
    fv_tensor y; /* [M, N] */
} fv_matmul_nn_args;

/* g = x x^T in double, for rows that are nearly dependent          [M, M] = [M, K] x [M, K]^T
 * Products of two f32 are exact in double, and each sum has 8 lanes:
 *     acc[i] = 0, i < 8;   for k = 0, 8, ...: acc[i] = acc[i] + x[m,k+i] x[n,k+i]
 *     for s = 4, 2, 1:     acc[i] += acc[i + s], i < s;      the result is acc[0]
 * padded with zeros past K. */
typedef struct fv_syrk_args {
    fv_tensor x; /* [M, K] */
    double *g;   /* [M, M] on the host, row-major: the part on and below the diagonal is written */
} fv_syrk_args;

/* ---- row-wise -------------------------------------------------------------------------- */

/* LayerNorm:  y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b
 * RMSNorm (bias absent and rms set):  y = w * (x / sqrt(mean(x^2) + eps))
 * Sums are canonical: of x with ones for the mean, of (x - mean) or x with itself for the squares.
 * Then one rounding per operation as written: subtract, divide, multiply, add.
 * x [M, K]; w, b [1, K]; y [M, K], may be x. */
typedef struct fv_norm_args {
    fv_tensor x, w, b, y;
    float eps;
    bool rms;
} fv_norm_args;

typedef enum fv_activation {
    FV_ACT_SILU = 0,   /* x / (1 + exp(-x)) */
    FV_ACT_GELU,       /* x/2 (1 + erf(x / sqrt 2)), the exact form */
    FV_ACT_GELU_TANH,  /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    FV_ACT_QUICK_GELU, /* x / (1 + exp(-1.702 x)) */
    FV_ACT_RELU,
    FV_ACT_NONE,    /* x */
    FV_ACT_SIGMOID, /* 1 / (1 + exp(-x)) */
    FV_N_ACT
} fv_activation;

/* y = act(x), or y = act(x) * gate when gate is present (SwiGLU: x = gate_proj's output,
 * gate = up_proj's). accumulate: y = act(x) * gate + y, rounded twice (LayerScale, arXiv 2103.17239:
 * act is none, and gate is one row of factors, with ld 0).
 * x, gate, y [M, K]; y may be x. */
typedef struct fv_activate_args {
    fv_activation act;
    fv_tensor x, gate, y;
    bool accumulate;
} fv_activate_args;

/* Rotary position embedding, half-split form, in place. For each row r, each head's pair
 * (a, b) = (x[i], x[i + D/2]), i < D/2:
 *     x[i] = a cos[r,i] - b sin[r,i];   x[i + D/2] = b cos[r,i] + a sin[r,i]
 * each side one multiplication, then one fused multiply-add:
 *     fma(a, cos, -(b sin)) and fma(b, cos, a sin).
 * x [M, n_head * D]; cos, sin [M, D/2] F32, computed on the host. */
typedef struct fv_rope_args {
    fv_tensor x, cos, sin;
    int32_t n_head;
} fv_rope_args;

/* y[i] = table[ids[i]], widened. table [vocab, K] any dtype; y [n, K]; ids on the host,
 * checked by the caller. */
typedef struct fv_index_select_args {
    fv_tensor table, y;
    const int32_t *ids; /* [y.rows] */
} fv_index_select_args;

/* ---- KV and attention ------------------------------------------------------------------ */

enum { FV_KV_BLOCK = 64, FV_ATTN_MAX_SEG = 4 };

/* Up to FV_KV_BLOCK consecutive rows of one layer and one KV head: k and v each
 * [FV_KV_BLOCK, D] of the KV dtype, row-major. Rows past the run's length are never read. */
typedef struct fv_kv_block {
    void *k, *v;
} fv_kv_block;

/* The rows of one (layer, KV head, segment): row j is row j % FV_KV_BLOCK of block
 * j / FV_KV_BLOCK. len = 0 needs no blocks. */
typedef struct fv_block_table {
    fv_kv_block *block; /* [ceil(len / FV_KV_BLOCK)] at least */
    int32_t len;
} fv_block_table;

/* Appends rows to block tables. Row r of sequence s goes, for every KV head g, to row
 * tables[g * n_seg + seg[r]].len + slot[r] of that table; the caller has provided the blocks and
 * adds to `len` afterwards. k, v [M, Hkv * D] activations, or one of them absent: that half of the
 * rows stays unchanged. Rows are narrowed to kv_dtype, to nearest even. */
typedef struct fv_kv_write_seq {
    int32_t row0, n_rows; /* rows of k and v that belong to this sequence */
    int32_t n_seg;
    fv_block_table *tables; /* [Hkv, n_seg] */
    const uint8_t *seg;     /* [n_rows] */
    const int32_t *slot;    /* [n_rows] */
} fv_kv_write_seq;

typedef struct fv_kv_write_args {
    fv_tensor k, v;
    fv_dtype kv_dtype;
    int32_t n_kv, d_head, n_seq;
    const fv_kv_write_seq *seqs; /* [n_seq] */
} fv_kv_write_args;

/* How a query row's attention to segment 0 is changed after its softmax: dropped probability is not
 * redistributed, so the row's probabilities sum to less than 1. */
typedef enum fv_attn_share {
    FV_SHARE_KEPT = 0,
    FV_SHARE_DROPPED,      /* p_j = 0 for the rows of segment 0 */
    FV_SHARE_ON_FIRST,     /* row 0 of segment 0 gets the sum of them, the others 0 */
    FV_SHARE_WITHOUT_FIRST /* p_j = 0 for the first n_first rows of segment 0 */
} fv_attn_share;

/* A sequence's part of an attention call. Query row i sees the first tables[g * n_seg + s].len -
 * masked_tail[s * n_rows + i] rows of segment s and KV head g: `masked_tail` counts the rows at the
 * segment's end that come after the query (causality). Lengths may differ per head. With a sliding
 * window it sees only rows whose position is at least window_from[i]. */
typedef struct fv_attn_seq {
    int32_t row0, n_rows;         /* rows of q and o */
    int32_t n_seg;                /* 1..FV_ATTN_MAX_SEG */
    const fv_block_table *tables; /* [Hkv, n_seg] */
    const int32_t *masked_tail;   /* [n_seg, n_rows] on the host; NULL: nothing is masked */
    const int32_t *window_from;   /* [n_rows] on the host; NULL: no window */
    const int32_t *const
        *position; /* [Hkv, n_seg] of the tables' rows, on the host; only with a window */
    const uint8_t
        *share;      /* [n_rows] fv_attn_share on the host; NULL: kept in all; only with n = 0 */
    int32_t n_first; /* for FV_SHARE_WITHOUT_FIRST */
    float n;         /* n of n-softmax, 0 or more */
} fv_attn_seq;

/* o = softmax(scale * q K^T) V over all segments, per query head h with KV head
 * g = h / (H / Hkv). A query without visible keys gets o = 0, lse = -inf.
 *
 * Order of summation, per query row and head, over segments in order, over the visible rows
 * of each segment in blocks of FV_KV_BLOCK counted from the segment's start:
 *     s_j = scale * dot(q, k_j)               canonical dot over D, then one multiplication
 *     m'  = max(m, max_j s_j);  c = exp(m - m')          (0 for the first block)
 *     p_j = exp(s_j - m');      l = l * c + sum_j p_j    (sum: lanes and tree as above;
 *                                                         l * c + sum is one fma)
 *     o[d] = o[d] * c, then for j in order: o[d] = fma(p_j, v_j[d], o[d])
 * and at the end o[d] = o[d] / l, lse = m + log(l).
 *
 * Rows ahead of a window have p_j = 0 and are otherwise treated like the others; their values must be
 * finite. A block in which a query row sees nothing is skipped for that row.
 *
 * n-softmax: p_j = exp(s_j) / (n + sum_j exp(s_j)), that is, one additional key of score ln n and
 * value 0. That key comes first: m = ln n, l = 1, o = 0; lse includes it. If a softmax is computed in
 * parts and merged, exactly one of the parts has it.
 *
 * A changed share: after segment 0, if a row has attended to any of it, o[d] = 0 (dropped)
 * or o[d] = l * v_0[d] (moved to the first token), and m, l and lse stay.
 *
 * On a backend that computes in bf16, both products are canonical in bf16, and p is rounded to bf16
 * before it is summed and used:
 *     p_j = bf16(exp(s_j - m'))
 *     o[d] = (o[d] + 0) * c, then with o[d] as acc the two steps of sum_j p_j v_j[d] over the
 *            FV_KV_BLOCK rows of the block, with p_j = v_j[d] = 0 for rows that are not visible
 * and at the end o[d] = (o[d] + 0) / l: the sign of a zero is not kept, so that multiplying by p_j = 0
 * and a finite v_j changes nothing. l * v_0[d] is flushed. score_sums has the same scores; all else is
 * in f32. */
typedef struct fv_attn_args {
    fv_tensor q, o, lse; /* q, o [M, H * D]; lse [M, H] F32 or absent */
    fv_dtype kv_dtype;
    int32_t n_head, n_kv, d_head, n_seq;
    float scale; /* 1 / sqrt(D) unless the checkpoint says otherwise */
    /* Whether sequences of the layer may have a window. A backend chooses its kernels by this, not by the
     * sequences of a call, so that the bits of a row do not depend on the others. */
    bool slides;
    const fv_attn_seq *seqs; /* [n_seq] */
} fv_attn_args;

/* Sums, per key, the attention probabilities of the last rows of a sequence, by kind of row. */
typedef struct fv_score_sum {
    int32_t seq;         /* index of the sequence in attn->seqs */
    int32_t n_row;       /* how many of its last rows are summed */
    float n;             /* n of n-softmax, for these sums alone */
    int32_t n_kind;      /* at least 1 */
    const uint8_t *kind; /* [n_row] below n_kind, on the host; NULL: all are 0 */
    bool low;            /* instead counts rows whose probability is below an even share */
    int32_t ld;          /* columns of sum */
    int32_t column[FV_ATTN_MAX_SEG]; /* key j of segment s is at column[s] + j */
    /* [n_row, ld] weight of a row's probability, column by column; NULL: 1 */
    const float *weight;
    bool
        head_max; /* adds the largest of all heads; they hold the same keys, and there is no weight */
    float *sum;   /* [H, n_kind, ld] F32, with head_max [n_kind, ld]; in and out */
    bool fresh;   /* the sums start from zero, whatever the memory holds */
} fv_score_sum;

/* A second pass over q K^T, with the lse that attention has computed (before changed shares).
 *     lse' = ln(e^lse + n) = a + log(exp(lse - a) + exp(ln n - a)),  a = max(lse, ln n);
 *            lse where n = 0
 *     sum[h, kind[r], j] += exp(s_rj - lse'_r)      row after row in order, one addition each;
 *                          (weight[r, j] * that; with head_max its maximum over h)
 *                                                   keys that a row does not see get nothing
 * or, with `low`,
 *     sum[h, kind[r], j] += 1 where exp(s_rj - lse'_r) < 1 / n_r,  n_r the keys that row r sees
 * Two calls with successive rows give the bits of one call with all of them. A single row, added to
 * zeros, gives that row's probabilities. */
typedef struct fv_score_sums_args {
    const fv_attn_args *attn; /* the arguments of the attention call, with lse; o is not read */
    int32_t n_sum;
    const fv_score_sum *sums; /* [n_sum] no two write to the same memory */
} fv_score_sums_args;

/* ---- packed blocks --------------------------------------------------------------------- */

/* A sequence's part of a call: its query rows see all valid rows. */
typedef struct fv_packed_seq {
    int32_t row0, n_rows;        /* rows of q and o */
    const fv_packed_part *k, *v; /* of the same rows */
    const fv_packed_rows *rows;
    /* Scores of the last score_rows query rows, or none (NULL): [H, score_rows, score_ld] F32,
     * row j of the block at column j; rows that are not valid, and columns past the end, -inf. */
    float *score;
    int32_t score_rows, score_ld;
} fv_packed_seq;

/* Attention on packed rows in rank space (packed/lowrank.h): keys and values are never rebuilt from factors. With
 * u_j, w_j the rows of the keys' and values' U, 0 beyond the rank at which row j is read, per
 * query row and head h with KV head g:
 *
 *     q_a[i]       = fma(q[i], cos, q[i + D/2] sin)            Rot(-a) q per anchor block, i < D/2
 *     q_a[i + D/2] = fma(q[i + D/2], cos, -(q[i] sin))         (q itself where there are no angles)
 *     t_a[r] = (t_a[r] = fma(q_a[d], B_k[r, g, d], t_a[r]))    one chain over d = 0 .. D - 1 from 0
 *     s_j = scale * (s_j = fma(t_a[r], u_j[r], s_j))    one chain over r = 0 .. R - 1 from 0, a
 *         being the block of row j
 *     m, l, p_j, c as in attention, over blocks of FV_KV_BLOCK rows counted from row 0; rows that
 *         are not valid have p = 0, and a block without valid rows is skipped
 *     z[r] = z[r] * c, then for valid j in order, r < the rank of j: z[r] = fma(p_j, w_j[r], z[r])
 * and at the end, one chain over r = 0, 1, ... from 0, then a division:
 *     o[d] = (o[d] = fma(z[r], B_v[r, g, d], o[d])) / l;   lse = m + log(l)
 *
 * Where values are rows (packed/lowrank.h), z is o itself: o[d] = o[d] * c, then o[d] = fma(p_j, v_j[d],
 * o[d]), as in attention, and at the end the division.
 *
 * On a backend that computes in bf16, decoded numbers, q_a, t_a, z and p_j are rounded before they are
 * multiplied: t_a, s_j and o[d] * l are canonical dot products in bf16, over d, r and r,
 * p_j = bf16(exp(s_j - m')), and z[r] is a product continued from z[r] * c as acc, whose steps take
 * p_j w_j[r] over the block's valid rows whose rank is above r, in order, with zeros up to a whole
 * step. Without a step a subnormal z[r] stays.
 *
 * A query that sees nothing gets o = 0, lse = -inf. The cost of factors does not grow with Hkv * D:
 * all heads read the same u_j and w_j. */
typedef struct fv_attn_packed_args {
    fv_tensor q, o, lse; /* q, o [M, H * D]; lse [M, H] F32 or absent */
    int32_t n_head, n_kv, d_head, n_seq;
    float scale;               /* > 0 */
    const fv_packed_seq *seqs; /* [n_seq] */
} fv_attn_packed_args;

/* attn_quantized: attention on quantized tokens (packed/codes.h), decoded on the fly, with the same arguments,
 * except that no scores are written. With k_j, v_j the D decoded numbers of token j and KV head g,
 * outliers included:
 *
 *     k_j[i]       = fma(k_j[i], cos_j, -(k_j[i + D/2] sin_j))      Rot(a) k_j, a the anchor,
 *     k_j[i + D/2] = fma(k_j[i + D/2], cos_j, k_j[i] sin_j)         i < D/2 (k_j itself without
 *                                                                   angles)
 *     s_j = scale * (s_j = fma(q[d], k_j[d], s_j))    one chain over d = 0 .. D - 1 from 0
 *     m, l, p_j, c as in attn_lowrank
 *     o[d] = o[d] * c, then for valid j in order: o[d] = fma(p_j, v_j[d], o[d])
 * and at the end o[d] = o[d] / l, lse = m + log(l). Keys are rotated, not queries: one
 * rotation serves all query rows and heads that read the token.
 *
 * In bf16 s_j is a canonical dot product in bf16, and o[d] is continued like z[r] in attn_lowrank.
 *
 * attn_merged is the same on directions shared by two layers (packed/merged.h): k_j and v_j are norm_j
 * times the direction's D numbers, or the exact vector.
 *
 * attn_latent is the same on coefficients (packed/latent.h), and scores are written. Row j is read with n_j
 * numbers: its levels L_j of directions that have bits, then coefficients u_j of own directions and
 * that of the exact token, n in all; of group 1 only the first R2, the keys' R2 or the values':
 *
 *     k_j[d] = fma(scale[g, d], sum of L_j[r] K[g, d, r], mean[g, d])    r < n_j, in integers;
 *         0 for the exact token
 *         where keys are codes (`coded`): fma(sigma[g, d], fma(s_j, code_j[d], -7.5 s_j), mean[g, d])
 *     k_j[d] = fma(u_j[i], O_k[i, g, d], k_j[d])                         i in order, below n_j
 *     s_j, m, l, p_j, c as above, of the rotated k_j
 *     y[r] = y[r] * c, then for valid j in order, r < 1 + n_j: y[r] = fma(p_j, z_j[r], y[r]),
 *         z_j[0] = 1 (0 for the exact token), then L_j[r] * (deviation[r] / 32), then u_j
 *     o[d] = (o[d] = fma(y[r], B_v[g, r, d], o[d])) / l     one chain over r = 0 .. n from 0, B_v
 *         the mean, the values' directions and the own ones
 *
 * so a key is rebuilt once for all queries that read it, and values once per query row and head. A part
 * that borrows may have fewer rows than its base: the first ones. In bf16 y[r] is continued like z[r] in
 * attn_lowrank; the product with the directions stays in f32. */

/* latent_codes: makes the codes of latent keys (packed/latent.h), for all rows, from the levels of directions
 * that have bits, which are 0 for the exact token. Per KV head g and row:
 *     w[d] = (scale[g, d] / sigma[g, d]) sum of L[r] K[g, d, r]     the quotient is 0 if sigma is 0
 *     s = max |w[d]| / 7.5, in f16
 *     code[d] = floor(w[d] / s + 8), clamped to 0 .. 15; 0 if s is 0
 * in f32: code_of (packed/scales.h) with lo = -7.5 s. */
typedef struct fv_latent_codes_args {
    const fv_packed_part *k; /* coded; only the codes in its data are written */
} fv_latent_codes_args;

/* Merges attention over two disjoint sets of keys into attention over both, in place of the first:
 *     m = max(lse, lse2);  w = exp(lse - m), w2 = exp(lse2 - m);  l = w + w2
 *     o[d] = fma(w2, o2[d], w o[d]) / l;   lse = m + log(l)
 * per row and head. If one set is empty (lse = -inf), the other's bits are kept. The additional key of
 * n-softmax belongs to one set only: the uncompressed one, because attention on packed rows has no n.
 * o, o2 [M, H * D]; lse, lse2 [M, H]. */
typedef struct fv_merge_args {
    fv_tensor o, lse, o2, lse2;
    int32_t n_head;
} fv_merge_args;

/* Updates the importance of packed rows as the answer grows (AttentionPack, equation 4):
 *     I_j = fma(keep, I_j, (1 - keep) mean_j),   mean_j = (sum of exp(s_ij - lse_i)) / (H n_rows)
 * with the sum over heads, and for each over query rows, in order. keep = alpha^n_rows; 0: I is not read.
 * score as written by attn_lowrank; lse [n_rows, H] of the same rows over all keys, after merge;
 * importance [1, n]. */
typedef struct fv_importance_args {
    const float *score; /* [H, n_rows, score_ld] */
    int32_t n_head, n_rows, score_ld;
    fv_tensor lse, importance;
    float keep;
} fv_importance_args;

/* ---- factors --------------------------------------------------------------------------- */

/* A matrix to factor, together with others, by the rule of kernels/factor_rule.h:
 *     M / unit ~= U B      M [T, W], U [T, R], B [R, W]       R = min(rank, T, W)
 * with the rows of B orthonormal and the strongest first, or 0 if M has no more directions. All are
 * on the backend's device, F32 and contiguous; M may come back divided by unit. */
typedef struct fv_factor_task {
    fv_tensor m, u, basis;
    int32_t rank; /* at least 1 */
    bool sketch;  /* sketch instead of gram (factor/factor.h) */
    uint64_t seed;
    /* results, on the host */
    int32_t bad_row; /* the first row that is not finite; -1: all are */
    float top;       /* the largest absolute value */
    float unit;      /* a power of two; 1 if f32 holds all squares */
    double norm2;    /* ||M / unit||^2 */
    int32_t steps;   /* 0: no factors, because M is not finite, all 0 or too large */
} fv_factor_task;

/* ---- the table ------------------------------------------------------------------------- */

typedef struct fv_backend_options {
    int32_t n_threads; /* CPU: threads, the caller's included; 0 = all cores */
    int32_t device;    /* device number of a GPU backend */
    const char *isa;   /* CPU: "auto" or a name of kernels/cpu/isa.def; CUDA: "auto", "exact" (the
                        * CPU's bits, without tensor cores and cuBLAS); NULL = auto */
    const char *trace; /* CUDA: file for the GPU's time by kernel, written at close; NULL: none */
} fv_backend_options;

/* Computes item i of many that do not depend on each other. Its operations go to `be`, which is the
 * backend or a part of it; two items that run at the same time have different slots. */
enum { FV_EACH_SLOTS = 256 };
typedef void fv_each_fn(void *arg, fv_backend *be, int32_t slot, int32_t i);

/* Arguments that are not defined above are in kernels/<operation>.h. */
#define FV_OP(name, args) typedef struct args args;
#include "kernels/ops.def"

typedef struct fv_backend_ops {
    const char *name; /* "cpu", "cuda" */
    fv_dtype act;     /* dtype of activations */
    fv_status (*open)(fv_backend *be, const fv_backend_options *opt);
    void (*close)(fv_backend *be);
    /* Makes a checkpoint's tensor usable as a weight. `host` stays mapped until close. The
     * CPU borrows it (*out = *host, owned stays empty); a GPU uploads into *owned, which the
     * caller frees. */
    fv_status (*weight)(fv_backend *be, const fv_tensor *host, fv_tensor *out, fv_buf *owned);
    fv_status (*sync)(fv_backend *be); /* waits for all that was issued */
    /* Begin and end a step, which takes a few rows through the whole network and is repeated many times
     * (fv_backend_step_begin). NULL: steps mean nothing to the backend. */
    fv_status (*step_begin)(fv_backend *be, int32_t rows);
    fv_status (*step_end)(fv_backend *be);
    /* operations; FV_EUNSUPPORTED where the backend lacks one */
#define FV_OP(name, args) fv_status (*name)(fv_backend * be, const args *a);
#include "kernels/ops.def"
    /* Factors n matrices together; results are complete on return. FV_EUNSUPPORTED if sums must have the
     * canonical order. */
    fv_status (*factorise)(fv_backend *be, fv_factor_task *tasks, int32_t n);
    /* Calls fn for each i < n, several at the same time if that is faster than one after the other on all
     * threads: see fv_backend_each. NULL: one after the other. */
    fv_status (*each)(fv_backend *be, int32_t n, fv_each_fn *fn, void *arg);
    /* Why nothing will run on the device again in this process; NULL: it is usable. Any thread.
     * NULL entry: the backend cannot be lost. */
    const char *(*lost)(const fv_backend *be);
    /* Transfers to the device of another process; NULL: only through the host. */
    const fv_peer_ops *pairs;
} fv_backend_ops;

struct fv_backend {
    const fv_backend_ops *ops;
    fv_device *device; /* of its memory; borrowed */
    const char
        *isa; /* on the CPU the best instruction set that is used, of kernels/cpu/isa.def; "cuda",
              * "cuda-exact" or "cuda-fast": kernels/tier.h */
    /* The type of dot products in linear, attention on raw and packed rows, and score_sums. Set it after opening the
     * backend, before the first operation. */
    fv_compute compute;
    void *impl; /* private to the backend */
};

/* Backends are opened by name: kernels/backends/open.h. */
void fv_backend_close(fv_backend *be);

/* Begins or ends a step of `rows` rows: in between the backend may defer operations, and replay those of
 * an equal earlier step. No result depends on steps. A step that has begun must be ended, even if an
 * operation has failed. */
fv_status fv_backend_step_begin(fv_backend *be, int32_t rows);
fv_status fv_backend_step_end(fv_backend *be);

/* Calls fn for each i in [0, n), in any order and on any threads, slot < FV_EACH_SLOTS; returns after all
 * calls and the operations they issued are complete. Does not wait for earlier operations, so the caller
 * syncs the items' inputs first. An item gives the same bits on any thread, and must not call this. Items
 * record their own failures; FV_EDEVICE: an issued operation failed on the device. Call it on the
 * owner's thread. */
fv_status fv_backend_each(fv_backend *be, int32_t n, fv_each_fn *fn, void *arg);

/* Why the backend's device is lost, so that every further call fails and only a new process helps; NULL:
 * it is usable. Any thread. */
const char *fv_backend_lost(const fv_backend *be);

#ifdef __cplusplus
}
#endif
#endif
