#ifndef FOVEA_KERNELS_CPU_PLAIN_BF16_H
#define FOVEA_KERNELS_CPU_PLAIN_BF16_H

/* The canonical dot product in bf16 (kernels/ops.h), for any machine: flushes explicitly, and leaves MXCSR
 * as it is. */
#include <float.h>

#include "common/convert.h"
#include "kernels/cpu/plain/plain.h"

static inline float plain_flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }

/* Element i as an operand: rounded to bf16, subnormals flushed. */
static inline float plain_operand(const void *p, fv_dtype t, size_t i) {
    return plain_flushed(f32_of_bf16(bf16_of_f32(widened(p, t, i))));
}

/* fma(x, w, acc) of numbers that are not subnormal, flushed. Where the result is near 2^-126, all three are
 * small or a factor is 0, and scaling by 2^64 gives the rounding with an unbounded exponent. */
static inline float plain_fma_flushed(float x, float w, float acc) {
    float y = fmaf(x, w, acc);
    if (!(fabsf(y) <= FLT_MIN)) return y;
    return fabsf(fmaf(x * 0x1p64f, w, acc * 0x1p64f)) < FLT_MIN * 0x1p64f ? copysignf(0.0f, y) : y;
}

/* Adds 32 products to acc. A sum below 2^-126 is exact, so flushing before or after rounding is the
 * same. */
static inline float plain_step_bf16(float acc, const float x[32], const float w[32]) {
    float even = 0.0f, odd = 0.0f;
    for (int i = 0; i < 32; i += 2) {
        even = plain_fma_flushed(x[i], w[i], even);
        odd = plain_fma_flushed(x[i + 1], w[i + 1], odd);
    }
    return plain_flushed(acc + plain_flushed(even + odd));
}

/* Adds n products to acc; a subnormal acc counts as 0 only if there is a step. */
static inline float plain_dot_bf16_on(float acc, const void *x, fv_dtype tx, const void *w,
                                      fv_dtype tw, size_t n) {
    for (size_t k = 0; k < n; k += 32) {
        float xs[32] = {0}, ws[32] = {0};
        for (size_t i = 0; i < 32 && k + i < n; i++) {
            xs[i] = plain_operand(x, tx, k + i);
            ws[i] = plain_operand(w, tw, k + i);
        }
        acc = plain_step_bf16(plain_flushed(acc), xs, ws);
    }
    return acc;
}

static inline float plain_dot_bf16(const void *x, fv_dtype tx, const void *w, fv_dtype tw,
                                   size_t n) {
    return plain_dot_bf16_on(0.0f, x, tx, w, tw, n);
}

#endif
