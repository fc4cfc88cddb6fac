#ifndef FOVEA_KERNELS_CPU_AVX512BF16_EIGHT_ROWS_E4M3_H
#define FOVEA_KERNELS_CPU_AVX512BF16_EIGHT_ROWS_E4M3_H

/* Canonical products in bf16 of one or two vectors with eight rows of codes in E4M3 that are read in place: a code
 * becomes a number, is scaled and rounded to bf16 in registers.
 *
 * With its exponent's and its fraction's bits in their places of f16, a code counts 2^-8 times its number. Converting
 * f16 to f32 is exact and flushes nothing, whatever MXCSR says. Scales are 2^8 times as large for it. */
#include "kernels/cpu/avx512bf16/eight_rows.h"
#include "kernels/cpu/avx512bf16/narrow.h"

typedef struct eight_rows_codes {
    const char *volatile row[EIGHT];
    const float
        *by; /* [EIGHT, groups] 2^8 times the scales, which make all products normal numbers */
    size_t groups, per; /* scales of a row, and steps per scale */
    const uint32_t *x;  /* words of each vector (alternating_words_of()) */
    size_t ldx;         /* words to the next vector */
    size_t steps;
    __mmask32 last; /* mask of the last step's codes; a row is not read beyond them */
    size_t ahead;   /* bytes from a row to the one to prefetch */
} eight_rows_codes;

/* Bytes ahead of a row's step are prefetched once in a cache line. */
static ALWAYS_INLINE void eight_rows_prefetch(const char *at, size_t step, size_t ahead) {
    if (step % 2 == 0) _mm_prefetch((const void *)((uintptr_t)at + ahead), _MM_HINT_T1);
}

/* Words of 32 codes times `by`; *most: the largest of its codes so far without their signs. */
static ALWAYS_INLINE __m512i eight_rows_e4m3_words(__m256i codes, float by, __m256i *most) {
    *most = _mm256_max_epu8(*most, _mm256_and_si256(codes, _mm256_set1_epi8(0x7f)));
    __m512i half = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);
    half = _mm512_and_si512(half, _mm512_set1_epi16((short)0xbf80));
    const __m512 scale = _mm512_set1_ps(by);
    __m512 lo = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
    __m512 hi = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
    return narrow_normal(_mm512_mul_ps(lo, scale), _mm512_mul_ps(hi, scale));
}

/* Sums [mr, EIGHT] of mr vectors with eight rows; mr is a constant after inlining. Returns false where a code is
 * NaN. */
static ALWAYS_INLINE bool eight_rows_e4m3(const eight_rows_codes *t, const int mr, float *to) {
    const uint32_t *x = t->x;
    const __m512i order = alternating_order();
    __m256i most = _mm256_setzero_si256();
    __m512 sums[EIGHT_ROWS_FEW];
    UNROLL for (int i = 0; i < mr; i++) sums[i] = _mm512_setzero_ps();
    for (size_t s = 0; s < t->steps; s++, x += STEP_WORDS) {
        const __mmask32 in = s + 1 < t->steps ? ~0u : t->last;
        const float *by = t->by + s / t->per;
        __m512i of[EIGHT];
        UNROLL for (size_t i = 0; i < EIGHT; i++) {
            const char *at = t->row[i] + s * WORDS_STEP;
            eight_rows_prefetch(at, s, t->ahead);
            of[i] = _mm512_permutexvar_epi16(
                order,
                eight_rows_e4m3_words(_mm256_maskz_loadu_epi8(in, at), by[i * t->groups], &most));
        }
        eight_rows_transpose(of);
        eight_rows_step(of, x, t->ldx, mr, sums);
    }
    UNROLL for (int i = 0; i < mr; i++) _mm256_storeu_ps(to + i * EIGHT, eight_rows_once(sums[i]));
    return _mm256_cmpeq_epi8_mask(most, _mm256_set1_epi8(0x7f)) == 0;
}

#endif
