#ifndef FOVEA_COMMON_CONVERT_H
#define FOVEA_COMMON_CONVERT_H

/* Conversion between the storage types and f32, for CPU and GPU code.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even; NaN stays NaN, and numbers out of
 * range become infinity. The functions have no branches, so that compilers turn loops over them into
 * vector code, which gives the same bits on every path. */
#include <stdint.h>
#include <string.h>

#include "common/dtype.h"

#ifndef FV_ANYWHERE
#define FV_ANYWHERE /* __host__ __device__ for nvcc */
#endif

FV_ANYWHERE static inline float f32_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

FV_ANYWHERE static inline uint32_t bits_of_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

FV_ANYWHERE static inline float f32_of_bf16(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }

/* The exponent and mantissa of a half, moved into place, are those of an f32 that is too small
 * by 2^112; the product is exact and makes subnormal halves normal. */
FV_ANYWHERE static inline float f32_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = bits_of_f32(f32_of_bits(mag) * 0x1p112f);
    return f32_of_bits(sign | (mag >= 0x7c00u << 13 ? mag | 0x7f800000 : finite));
}

FV_ANYWHERE static inline uint16_t bf16_of_f32(float f) {
    uint32_t u = bits_of_f32(f);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : rounded);
}

/* Subnormal halves are multiples of 2^-24, the last place of a float in [1/2, 1): adding 1/2
 * rounds to them. Rounding a normal half up may carry into the exponent, as it should. */
FV_ANYWHERE static inline uint16_t f16_of_f32(float f) {
    uint32_t u = bits_of_f32(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    uint32_t subnormal = bits_of_f32(f32_of_bits(mag) + 0.5f) - 0x3f000000;
    uint32_t normal = (mag + 0xfff + (mag >> 13 & 1) - 0x38000000) >> 13;
    uint32_t h = mag < 0x38800000 ? subnormal : normal;
    h = mag >= 0x477ff000 ? 0x7c00 : h; /* 65520 and up: infinity */
    h = mag > 0x7f800000 ? 0x7e00 : h;
    return (uint16_t)(sign | h);
}

/* Element i of an array of any type. */
FV_ANYWHERE static inline float widened(const void *p, fv_dtype t, size_t i) {
    switch (t) {
    case FV_BF16: return f32_of_bf16(((const uint16_t *)p)[i]);
    case FV_F16: return f32_of_f16(((const uint16_t *)p)[i]);
    default: return ((const float *)p)[i];
    }
}

/* Widens n elements of an array of any type; the arrays do not overlap. */
static inline void widen_row(const void *p, fv_dtype t, size_t n, float *__restrict y) {
    const uint16_t *h = (const uint16_t *)p;
    switch (t) {
    case FV_BF16:
        for (size_t i = 0; i < n; i++) y[i] = f32_of_bf16(h[i]);
        break;
    case FV_F16:
        for (size_t i = 0; i < n; i++) y[i] = f32_of_f16(h[i]);
        break;
    default: memcpy(y, p, n * sizeof *y);
    }
}

/* Narrows n numbers; the arrays do not overlap. */
static inline void narrow_row(const float *__restrict x, size_t n, fv_dtype t, void *p) {
    uint16_t *__restrict h = (uint16_t *)p;
    switch (t) {
    case FV_BF16:
        for (size_t i = 0; i < n; i++) h[i] = bf16_of_f32(x[i]);
        break;
    case FV_F16:
        for (size_t i = 0; i < n; i++) h[i] = f16_of_f32(x[i]);
        break;
    default: memcpy(p, x, n * sizeof *x);
    }
}

#endif
