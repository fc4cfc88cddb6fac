#ifndef FOVEA_KERNELS_CPU_AVX512BF16_NARROW_H
#define FOVEA_KERNELS_CPU_AVX512BF16_NARROW_H

/* Narrows f32 to operands of products in bf16, with AVX-512 BF16. */
#include "kernels/cpu/lanes/lanes.h"

/* Narrows 16 numbers exactly. */
static inline __m256i bf16_of(__m512 x) {
    __m512i rounded = _mm512_castps_si512(f32x16_round_bf16(x));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

/* Narrows 32 numbers. The instruction treats subnormal numbers as zeros, as products do; only those that
 * round up to 2^-126 need bf16_of(). */
static inline __m512i narrow(__m512 lo, __m512 hi) {
    const __m512i at = _mm512_set1_epi32(0x7fff8000), border = _mm512_set1_epi32(0x007f8000);
    __m512i a = _mm512_and_si512(_mm512_castps_si512(lo), at);
    __m512i b = _mm512_and_si512(_mm512_castps_si512(hi), at);
    if (_mm512_cmpeq_epi32_mask(a, border) | _mm512_cmpeq_epi32_mask(b, border))
        return _mm512_inserti64x4(_mm512_castsi256_si512(bf16_of(lo)), bf16_of(hi), 1);
    return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
}

/* narrow() for numbers that are 0 or at least 2^-126. */
static inline __m512i narrow_normal(__m512 lo, __m512 hi) {
    return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
}

#endif
