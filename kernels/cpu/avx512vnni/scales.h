#ifndef FOVEA_KERNELS_CPU_AVX512VNNI_SCALES_H
#define FOVEA_KERNELS_CPU_AVX512VNNI_SCALES_H

/* Transposes scales of groups of integers: lanes are 16 rows of w. */
#include "kernels/cpu/avx512/dwords.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

/* Transposes four scales in f32 of each of 16 rows. */
static ALWAYS_INLINE void four_scales(const float *at, size_t stride, float to[][LANES]) {
    __m512i each[4];
    dwords_of(at, stride * sizeof *at, each);
    UNROLL for (int j = 0; j < 4; j++) _mm512_storeu_si512(to[j], each[j]);
}

/* Transposes and widens eight scales of 16 bits of each of 16 rows. */
static ALWAYS_INLINE void eight_scales(const uint16_t *at, size_t stride, fv_dtype t,
                                       float to[][LANES]) {
    __m512i pair[4];
    dwords_of(at, stride * sizeof *at, pair);
    UNROLL for (int j = 0; j < 4; j++) {
        __m512i second = _mm512_srli_epi32(pair[j], 16);
        if (t == FV_BF16) {
            _mm512_storeu_si512(to[2 * j], _mm512_slli_epi32(pair[j], 16));
            _mm512_storeu_si512(to[2 * j + 1], _mm512_slli_epi32(second, 16));
        } else {
            _mm512_storeu_ps(to[2 * j], _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pair[j])));
            _mm512_storeu_ps(to[2 * j + 1], _mm512_cvtph_ps(_mm512_cvtepi32_epi16(second)));
        }
    }
}

/* Widens scale `at` of each of 16 rows. */
static ALWAYS_INLINE __m512 one_scale(const fv_quant *q, size_t at, size_t stride) {
    _Alignas(64) uint32_t each[LANES];
    if (q->scale_type == FV_F32) {
        for (size_t i = 0; i < LANES; i++) each[i] = ((const uint32_t *)q->scale)[at + i * stride];
        return _mm512_load_ps(each);
    }
    for (size_t i = 0; i < LANES; i++) each[i] = ((const uint16_t *)q->scale)[at + i * stride];
    const __m512i all = _mm512_load_si512(each);
    if (q->scale_type == FV_BF16) return _mm512_castsi512_ps(_mm512_slli_epi32(all, 16));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(all));
}

/* scales_of() of 16 rows whose scales are of several groups of x. */
static void wide_scales(const fv_quant *q, int64_t n0, size_t g0, size_t n, float to[][LANES]) {
    const size_t per = (size_t)q->group / INT8_GROUP, stride = (size_t)q->groups;
    for (size_t u = 0; u < n;) {
        const size_t of = (g0 + u) / per, end = (of + 1) * per - g0;
        const __m512 scale = one_scale(q, (size_t)n0 * stride + of, stride);
        for (; u < n && u < end; u++) _mm512_storeu_ps(to[u], scale);
    }
}

/* Scales of rows [n0, n0 + rows) for n groups of x from g0 on. */
static void scales_of(const fv_quant *q, int64_t n0, int rows, size_t g0, size_t n,
                      float to[][LANES]) {
    const size_t units = int8_scales(q, g0, n), stride = (size_t)q->groups;
    const size_t at = (size_t)n0 * stride + g0 * int8_units(q);
    const bool direct = rows == LANES && q->group <= INT8_GROUP;
    const size_t step = q->scale_type == FV_F32 ? 4 : 8;
    size_t u = 0;
    if (rows == LANES && q->group > INT8_GROUP) {
        wide_scales(q, n0, g0, n, to);
        return;
    }
    if (direct && units >= step) {
        for (; u < units; u += step) {
            if (units - u < step) u = units - step; /* loads some of them again */
            if (q->scale_type == FV_F32)
                four_scales((const float *)q->scale + at + u, stride, to + u);
            else
                eight_scales((const uint16_t *)q->scale + at + u, stride, q->scale_type, to + u);
        }
    }
    for (; u < units; u++)
        for (int i = 0; i < LANES; i++)
            to[u][i] = i < rows ? int8_scale_at(q, n0 + i, g0, u) : 0.0f;
}

#endif
