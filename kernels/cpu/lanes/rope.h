#ifndef FOVEA_KERNELS_CPU_LANES_ROPE_H
#define FOVEA_KERNELS_CPU_LANES_ROPE_H

/* Rotary position embedding; compilers vectorize the loop. */
#include <math.h>

#include "kernels/cpu/path.h"

static void rotate(float *restrict lo, float *restrict hi, const float *restrict c,
                   const float *restrict s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float a = lo[i], b = hi[i];
        lo[i] = fmaf(a, c[i], -(b * s[i]));
        hi[i] = fmaf(b, c[i], a * s[i]);
    }
}

static void rope(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_rope_args *a = args;
    (void)scratch;
    size_t half = (size_t)a->cos.cols;
    for (int64_t r = begin; r < end; r++)
        for (int32_t h = 0; h < a->n_head; h++) {
            float *x = row_f32(&a->x, r) + (size_t)h * 2 * half;
            rotate(x, x + half, row_f32(&a->cos, r), row_f32(&a->sin, r), half);
        }
}

#endif
