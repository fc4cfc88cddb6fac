#ifndef FOVEA_MODEL_LATENT_READS_H
#define FOVEA_MODEL_LATENT_READS_H

/* READS of visual keys and values, as weights for latent directions (fit.h): how much an
 * error in a key or a value changes a layer's output.
 *
 * A query q of head h gives token j the share a_j = exp(scale q k_j - lse) of its attention, and has
 * the output o W_o, W_o the head's columns of the output projection. To first order an error dk_j
 * before rotation, dv_j of token j changes it by
 *
 *     a_j scale (u_j dk_j) (v_j - o) W_o   and   a_j dv_j W_o,       u_j = Rot(-p_j) q
 *
 * so with independent errors, per layer and KV head, over its query heads, all queries and tokens,
 *
 *     M_K = sum a_j^2 scale^2 |(v_j - o) W_o|^2 u_j u_j^T
 *     M_V = sum a_j^2 W_o^T W_o
 *
 * and dk M_K dk^T + dv M_V dv^T is their contribution to the squared error of the output.
 *
 * Sums are in double, query after query: the same queries in the same order give the same bits. About
 * 1.5 D^2 multiply-adds per query, head and token. One thread. */
#include "common/status.h"
#include "kernels/tensor.h"

typedef struct fv_latent_reads fv_latent_reads; /* opaque */

fv_status fv_latent_reads_open(int32_t n_layer, int32_t n_head, int32_t n_kv, int32_t d_head,
                               fv_latent_reads **out);
void fv_latent_reads_close(fv_latent_reads *r); /* NULL is fine */

/* Sets a layer's output projection W_o [d, H * D], on the host, in F32, BF16 or F16. Call it before
 * the layer's queries. */
fv_status fv_latent_reads_output(fv_latent_reads *r, int32_t layer, const fv_tensor *w);

/* A query row of a layer and n visual tokens. */
typedef struct fv_latent_query {
    const float *q, *o;         /* [H, D] rotated, and attention's output */
    const float *lse;           /* [H] over all keys that the query sees */
    float scale;                /* of scores */
    int32_t n, first;           /* tokens [first, n) are visible; earlier ones are outside the
                                 * window */
    const float *k, *v;         /* [Hkv, n, D], keys rotated */
    int32_t half;               /* pairs (i, i + half) of a head are rotated */
    const float *cosine, *sine; /* [n, half] by the tokens' positions */
} fv_latent_query;

void fv_latent_reads_add(fv_latent_reads *r, int32_t layer, const fv_latent_query *q);

/* Number of a layer's queries so far. */
int64_t fv_latent_reads_count(const fv_latent_reads *r, int32_t layer);

/* M of a layer's keys (0) or values (1), [Hkv, D, D], all of it; zeros if there were no queries. */
void fv_latent_reads_weights(const fv_latent_reads *r, int32_t layer, int kind, double *m);

#endif
