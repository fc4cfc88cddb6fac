#ifndef FOVEA_KERNELS_CPU_LANES_NORM_H
#define FOVEA_KERNELS_CPU_LANES_NORM_H

/* LayerNorm and RMSNorm in loops that compilers vectorize; sums are the lanes and tree of kernels/ops.h.
 *
 * The loop runs over chunks in a local array: source and destination may be the same row, and a
 * compiler that has to allow for overlap does not vectorize. */
#include <math.h>
#include <string.h>

#include "common/convert.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/path.h"

enum { NORM_CHUNK = 256 };

/* Elements [at, at + n) of a one-row tensor as f32: in place, or widened into `wide`. */
static const float *chunk_f32(const fv_tensor *t, size_t at, size_t n, float *wide) {
    if (t->dtype == FV_F32) return (const float *)t->data + at;
    widen_row((const uint16_t *)t->data + at, t->dtype, n, wide);
    return wide;
}

static inline float lanes_tree(float acc[LANES]) {
    for (int s = LANES / 2; s > 0; s /= 2)
        for (int i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

static float sum_row(const float *x, size_t n) {
    float acc[LANES] = {0}, tail[LANES] = {0};
    size_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int i = 0; i < LANES; i++) acc[i] += x[k + i];
    memcpy(tail, x + k, (n - k) * sizeof *x);
    if (k < n)
        for (int i = 0; i < LANES; i++) acc[i] += tail[i];
    return lanes_tree(acc);
}

/* sum of (x - mean)^2: the dot product of x - mean with itself. */
static float sum_squares_row(const float *x, size_t n, float mean) {
    float acc[LANES] = {0}, tail[LANES] = {0};
    size_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int i = 0; i < LANES; i++) {
            float d = x[k + i] - mean;
            acc[i] = fmaf(d, d, acc[i]);
        }
    for (size_t i = 0; i < n - k; i++) tail[i] = x[k + i] - mean;
    if (k < n)
        for (int i = 0; i < LANES; i++) acc[i] = fmaf(tail[i], tail[i], acc[i]);
    return lanes_tree(acc);
}

static void norm(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_norm_args *a = args;
    (void)scratch;
    size_t n = (size_t)a->x.cols;
    float w_wide[NORM_CHUNK], b_wide[NORM_CHUNK], t[NORM_CHUNK];
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_f32(&a->x, r);
        float *y = row_f32(&a->y, r);
        float mean = a->rms ? 0.0f : sum_row(x, n) / (float)n;
        float scale = sqrtf(sum_squares_row(x, n, mean) / (float)n + a->eps);
        for (size_t k = 0; k < n; k += NORM_CHUNK) {
            size_t m = n - k < NORM_CHUNK ? n - k : NORM_CHUNK;
            const float *w = chunk_f32(&a->w, k, m, w_wide);
            for (size_t i = 0; i < m; i++) t[i] = (x[k + i] - mean) / scale * w[i];
            if (a->b.data) {
                const float *b = chunk_f32(&a->b, k, m, b_wide);
                for (size_t i = 0; i < m; i++) t[i] += b[i];
            }
            memcpy(y + k, t, m * sizeof *y);
        }
    }
}

#endif
