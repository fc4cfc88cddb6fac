#ifndef FOVEA_KERNELS_CPU_PLAIN_PLAIN_H
#define FOVEA_KERNELS_CPU_PLAIN_PLAIN_H

/* The plain path: the reference that every other path must match bit for bit.
 *
 * plain/<operation>.c computes one output at a time directly from its inputs, in the order that
 * kernels/ops.h defines; it shares nothing with the fast paths but the elementary functions and
 * conversions, which tests compare with double. It is compiled for any x86-64 (fmaf is then a call into
 * libm, exact on every machine), so it also serves machines without AVX2: correct, but some hundred
 * times slower than the others. */
#include <math.h>

#include "kernels/cpu/check.h"
#include "kernels/mathf.h"

#define FV_CPU_OP(op)                                                                              \
    fv_cpu_plan_fn fv_plain_##op##_plan;                                                           \
    fv_cpu_items fv_plain_##op;
#define FV_CPU_ROW_OP(op) fv_cpu_items fv_plain_##op;
#include "kernels/cpu/ops.def"

/* The tree of a canonical sum. */
static inline float plain_tree(float acc[16]) {
    for (int s = 8; s > 0; s /= 2)
        for (int i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

/* The canonical sum of n numbers. */
static inline float plain_sum(const float *x, size_t n) {
    float acc[16] = {0};
    for (size_t k = 0; k < n; k++) acc[k % 16] += x[k];
    return plain_tree(acc);
}

/* The canonical dot product of n elements of x and w. The padding's zeros are added too: a product that
 * underflowed may have left -0 in a lane. */
static inline float plain_dot(const float *x, const void *w, fv_dtype t, size_t n) {
    float acc[16] = {0};
    for (size_t k = 0; k < (n + 15) / 16 * 16; k++)
        acc[k % 16] = fmaf(k < n ? x[k] : 0.0f, k < n ? widened(w, t, k) : 0.0f, acc[k % 16]);
    return plain_tree(acc);
}

#endif
