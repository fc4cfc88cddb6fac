#ifndef FOVEA_KERNELS_CPU_AVX512_DWORDS_H
#define FOVEA_KERNELS_CPU_AVX512_DWORDS_H

#include <immintrin.h>
#include <stddef.h>

#include "kernels/cpu/inline.h"

/* Loads 16 bytes of each of 16 rows, transposed: dword j of row i becomes element i of to[j]. */
static ALWAYS_INLINE void dwords_of(const void *rows, size_t stride, __m512i to[4]) {
    __m512i r[4], t[4];
    UNROLL for (int i = 0; i < 4; i++) {
        const char *at = (const char *)rows + (size_t)i * stride;
        r[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)at));
        r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const void *)(at + 4 * stride)), 1);
        r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const void *)(at + 8 * stride)), 2);
        r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const void *)(at + 12 * stride)), 3);
    }
    UNROLL for (int i = 0; i < 2; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 2; i++) {
        to[2 * i] = _mm512_unpacklo_epi64(t[i], t[2 + i]);
        to[2 * i + 1] = _mm512_unpackhi_epi64(t[i], t[2 + i]);
    }
}

/* Sums the four dwords of each quarter of a, b, c and d; quarter i of the result has the sums of quarter i
 * of each. */
static ALWAYS_INLINE __m512i sums_of_quarters(__m512i a, __m512i b, __m512i c, __m512i d) {
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

#endif
