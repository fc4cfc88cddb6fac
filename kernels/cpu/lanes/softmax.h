#ifndef FOVEA_KERNELS_CPU_LANES_SOFTMAX_H
#define FOVEA_KERNELS_CPU_LANES_SOFTMAX_H

/* Softmax over one block of FV_KV_BLOCK scores per vector, with a running maximum and sum. */
#include <math.h>
#include <stdbool.h>

#include "kernels/cpu/lanes/exp.h"
#include "kernels/ops.h"

/* Scales a row of scores; those from n on become -inf, so that their p is 0. Returns the largest, or m
 * if that is larger. */
static ALWAYS_INLINE float scale_row(float *s, int32_t n, float scale, float m) {
    f32x16 top = f32x16_all(m), by = f32x16_all(scale);
    UNROLL for (int j = 0; j < FV_KV_BLOCK; j += LANES) {
        f32x16_store(s + j, f32x16_mul(f32x16_load(s + j), by));
    }
    for (int j = n; j < FV_KV_BLOCK; j++) s[j] = -INFINITY;
    UNROLL for (int j = 0; j < FV_KV_BLOCK; j += LANES) top = f32x16_max(top, f32x16_load(s + j));
    return f32x16_largest(top);
}

/* p = exp(s - m), rounded to bf16 with `bf16`; returns the lanes of their sum. */
static ALWAYS_INLINE f32x16 exp_row(float *s, float m, bool bf16) {
    f32x16 less = f32x16_all(-m), sum = f32x16_zero();
    UNROLL for (int j = 0; j < FV_KV_BLOCK; j += LANES) {
        f32x16 p = exp_lanes(f32x16_add(f32x16_load(s + j), less));
        if (bf16) p = f32x16_round_bf16(p);
        f32x16_store(s + j, p);
        sum = j ? f32x16_add(sum, p) : p;
    }
    return sum;
}

/* Turns R rows of scores, n_seen of each, into p and updates m and l; c = exp(m - m') is the factor of
 * o, 0 for the first block, where m = -inf. Four rows at a time share the trees of their sums, and none
 * waits for another's maximum. */
static void softmax(int32_t R, float scale, const int32_t *n_seen, bool bf16, float *rows,
                    float *m_of, float *l_of, float *c_of) {
    for (int32_t v0 = 0; v0 < R; v0 += 4) {
        int count = min_int(4, R - v0);
        f32x16 lanes[4] = {f32x16_zero(), f32x16_zero(), f32x16_zero(), f32x16_zero()};
        float m[4], sum[4], c[LANES] = {0}, *s = rows + (size_t)v0 * FV_KV_BLOCK;
        for (int i = 0; i < count; i++) {
            m[i] = scale_row(s + i * FV_KV_BLOCK, n_seen[v0 + i], scale, m_of[v0 + i]);
            c[i] = m_of[v0 + i] - m[i];
        }
        for (int i = 0; i < count; i++) lanes[i] = exp_row(s + i * FV_KV_BLOCK, m[i], bf16);
        f32x16_tree4(lanes[0], lanes[1], lanes[2], lanes[3], sum);
        f32x16_store(c, exp_lanes(f32x16_load(c)));
        for (int i = 0; i < count; i++) {
            int32_t v = v0 + i;
            bool sees = n_seen[v] > 0; /* if not, the block does not count for this row */
            c_of[v] = sees ? c[i] : 1.0f;
            l_of[v] = sees ? fmaf(l_of[v], c[i], sum[i]) : l_of[v];
            m_of[v] = m[i];
        }
    }
}

#endif
