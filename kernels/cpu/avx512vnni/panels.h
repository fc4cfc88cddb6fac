#ifndef FOVEA_KERNELS_CPU_AVX512VNNI_PANELS_H
#define FOVEA_KERNELS_CPU_AVX512VNNI_PANELS_H

/* Packs rows of integers as quads, for products with AVX-512 VNNI: lanes are 16 rows, and a lane holds four
 * neighbouring columns. VPDPBUSD takes w unsigned: integers of 8 bits are raised by 128, and those of 4 bits
 * stay 0..15 as stored. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/avx512/dwords.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

enum { QUADS = INT8_GROUP / 4 };

/* Packs 32 columns of 16 rows, of 8 or, with `int4`, 4 bits; 4-bit quads are the even columns of a dword, then
 * the odd ones. */
static ALWAYS_INLINE void quads_of(const uint8_t *rows, size_t stride, const bool int4,
                                   __m512i to[QUADS]) {
    const __m512i low = _mm512_set1_epi8(15), flip = _mm512_set1_epi8((char)0x80);
    __m512i d[QUADS];
    dwords_of(rows, stride, d);
    if (int4) {
        UNROLL for (int j = 0; j < QUADS / 2; j++) {
            to[2 * j] = _mm512_and_si512(d[j], low);
            to[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(d[j], 4), low);
        }
        return;
    }
    dwords_of(rows + 16, stride, d + 4);
    UNROLL for (int j = 0; j < QUADS; j++) to[j] = _mm512_xor_si512(d[j], flip);
}

/* quads_of() at the edge of w: `bytes` of each of the first `rows` rows, zeros for the others. */
static NEVER_INLINE void edge_of(const uint8_t *at, size_t stride, int rows, size_t bytes,
                                 bool int4, __m512i to[QUADS]) {
    uint8_t part[LANES][INT8_GROUP] = {{0}};
    for (int i = 0; i < rows; i++) memcpy(part[i], at + (size_t)i * stride, bytes);
    if (int4)
        quads_of(part[0], INT8_GROUP, true, to);
    else
        quads_of(part[0], INT8_GROUP, false, to);
}

#endif
