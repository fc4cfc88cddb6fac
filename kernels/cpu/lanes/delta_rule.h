#ifndef FOVEA_KERNELS_CPU_LANES_DELTA_RULE_H
#define FOVEA_KERNELS_CPU_LANES_DELTA_RULE_H

/* The gated delta rule: lanes are columns of the state. A tile's columns, up to 64 of 128 rows or
 * 32 KiB, stay in the first cache from token to token; the products with alpha are computed twice
 * instead of being stored between the two passes over them. */
#include "kernels/activations.h"
#include "kernels/cpu/lanes/dots.h"
#include "kernels/cpu/path.h"
#include "kernels/recurrent.h"

/* A token's vectors and factors of one value head. */
typedef struct delta_token {
    float q[FV_DELTA_KEY_MAX], k[FV_DELTA_KEY_MAX];
    float alpha, beta;
    const float *value;
    float *o;
} delta_token;

static float delta_squares(const float *x, int32_t n) {
    f32x16 acc = f32x16_zero();
    for (int32_t i = 0; i < n; i += LANES) {
        f32x16 v = f32x16_load(x + i);
        acc = f32x16_fma(v, v, acc);
    }
    float sum[4];
    trees(&acc, 1, sum);
    return sum[0];
}

static void delta_token_of(const fv_delta_rule_args *a, int64_t r, int32_t h, delta_token *t) {
    int32_t n = a->d_key, g = h / (a->n_value / a->n_key);
    const float *row = row_f32(&a->qkv, r), *query = row + (ptrdiff_t)g * n;
    const float *key = query + (ptrdiff_t)a->n_key * n;
    float by_q = 1.0f / sqrtf(delta_squares(query, n) + 1e-6f), root = 1.0f / sqrtf((float)n);
    float by_k = 1.0f / sqrtf(delta_squares(key, n) + 1e-6f);
    for (int32_t i = 0; i < n; i++) t->q[i] = query[i] * by_q * root;
    for (int32_t i = 0; i < n; i++) t->k[i] = key[i] * by_k;
    float step = softplus_f32(row_f32(&a->a, r)[h] + row_f32(&a->shift, 0)[h]);
    t->alpha = exp_f32(-(row_f32(&a->rate, 0)[h] * step));
    t->beta = act_sigmoid(row_f32(&a->b, r)[h]);
    t->value = row + (ptrdiff_t)2 * a->n_key * n + (ptrdiff_t)h * a->d_value;
    t->o = row_f32(&a->o, r) + (ptrdiff_t)h * a->d_value;
}

/* Runs a token on `nv` vectors of columns from c on. */
static ALWAYS_INLINE void delta_columns(const delta_token *t, float *S, size_t ld, int32_t n,
                                        int32_t c, const int nv) {
    const f32x16 alpha = f32x16_all(t->alpha), beta = f32x16_all(t->beta);
    f32x16 m[4], o[4];
    UNROLL for (int v = 0; v < nv; v++) m[v] = o[v] = f32x16_zero();
    for (int32_t i = 0; i < n; i++) {
        const float *at = S + (size_t)i * ld;
        f32x16 k = f32x16_all(t->k[i]);
        UNROLL for (int v = 0; v < nv; v++) {
            m[v] = f32x16_fma(f32x16_mul(f32x16_load(at + v * LANES), alpha), k, m[v]);
        }
    }
    UNROLL for (int v = 0; v < nv; v++) {
        f32x16 value = f32x16_load(t->value + c + v * LANES);
        /* value - m: -1 m is exact, and the fma rounds the difference once */
        m[v] = f32x16_mul(f32x16_fma(f32x16_all(-1.0f), m[v], value), beta);
    }
    for (int32_t i = 0; i < n; i++) {
        float *at = S + (size_t)i * ld;
        f32x16 k = f32x16_all(t->k[i]), q = f32x16_all(t->q[i]);
        UNROLL for (int v = 0; v < nv; v++) {
            f32x16 s = f32x16_mul(f32x16_load(at + v * LANES), alpha);
            s = f32x16_fma(k, m[v], s);
            f32x16_store(at + v * LANES, s);
            o[v] = f32x16_fma(s, q, o[v]);
        }
    }
    UNROLL for (int v = 0; v < nv; v++) f32x16_store(t->o + c + v * LANES, o[v]);
}

static NEVER_INLINE void delta_four(const delta_token *t, float *S, size_t ld, int32_t n,
                                    int32_t c) {
    delta_columns(t, S, ld, n, c, 4);
}

static NEVER_INLINE void delta_one(const delta_token *t, float *S, size_t ld, int32_t n,
                                   int32_t c) {
    delta_columns(t, S, ld, n, c, 1);
}

static void delta_rule(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_delta_rule_args *a = args;
    int64_t n_tile = div_up(a->d_value, FV_DELTA_TILE);
    size_t ld = (size_t)a->d_value;
    delta_token t;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const fv_recurrent_seq *s = &a->seqs[i / n_tile / a->n_value];
        int32_t h = (int32_t)(i / n_tile % a->n_value), c0 = (int32_t)(i % n_tile) * FV_DELTA_TILE;
        float *S = s->state + (ptrdiff_t)h * a->d_key * a->d_value;
        for (int32_t r = 0; r < s->n_rows; r++) {
            delta_token_of(a, s->row0 + r, h, &t);
            if (c0 + FV_DELTA_TILE <= a->d_value)
                delta_four(&t, S + c0, ld, a->d_key, c0);
            else
                for (int32_t c = c0; c < a->d_value; c += LANES)
                    delta_one(&t, S + c, ld, a->d_key, c);
        }
    }
}

#endif
