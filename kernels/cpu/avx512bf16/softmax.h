#ifndef FOVEA_KERNELS_CPU_AVX512BF16_SOFTMAX_H
#define FOVEA_KERNELS_CPU_AVX512BF16_SOFTMAX_H

/* Softmax over one block of scores where lanes are 16 vectors (lanes/softmax.h does it for rows), with p as words
 * of bf16 (avx512bf16/words.h). Nothing crosses lanes: the maximum and the sum are lanes too. x is the distance of a
 * score below the maximum:
 *
 *     MANY_NORMAL   e^-x is at least 2^-126: n is added to the exponent, and the instruction rounds to bf16
 *     MANY_SEEN     as MANY_NORMAL, or 0 for keys that are not seen
 *     MANY_ANY      any x: exp_lanes(), and exact rounding
 *
 * A block is computed in the first of these ranges that holds for it. */
#include "kernels/cpu/avx512bf16/vector_lanes.h"
#include "kernels/cpu/lanes/exp.h"
#include "kernels/ops.h"

typedef enum many_range { MANY_NORMAL, MANY_SEEN, MANY_ANY } many_range;

/* e^-x is at least 2^-126 up to MANY_MOST, and 0 from MANY_NONE on. */
#define MANY_MOST 87.0f
#define MANY_NONE 104.0f

/* e^-x with the bits of exp_f32(), 0 <= x <= MANY_MOST. */
static ALWAYS_INLINE __m512i exp_normal(__m512 x) {
    const __m512 round = _mm512_set1_ps(0x1.8p23f);
    __m512 t = _mm512_fnmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), round);
    __m512 n = _mm512_sub_ps(t, round);
    __m512 r = _mm512_fnmsub_ps(n, _mm512_set1_ps(LN2_HI), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6a4b98p-10f), r, _mm512_set1_ps(0x1.123e5cp-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558bap-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.55548cp-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    return _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23));
}

/* p of a row's score s and of the row two after it, as a word, and rounded in *p and *q; raises *most to the bits
 * of x. */
static ALWAYS_INLINE __m512i two_shares(__m512 m, const float *s, const many_range range,
                                        __m512i *most, __m512 *p, __m512 *q) {
    __m512 x = _mm512_loadu_ps(s), y = _mm512_loadu_ps(s + 2 * VECTOR_BAND);
    if (range == MANY_ANY) {
        *p = f32x16_round_bf16(exp_lanes(_mm512_sub_ps(x, m)));
        *q = f32x16_round_bf16(exp_lanes(_mm512_sub_ps(y, m)));
        return line_words(*p, *q);
    }
    x = _mm512_sub_ps(m, x), y = _mm512_sub_ps(m, y);
    __m512i a = exp_normal(x), b = exp_normal(y);
    if (range == MANY_SEEN) {
        const __m512 none = _mm512_set1_ps(MANY_NONE);
        __mmask16 in_x = _mm512_cmp_ps_mask(x, none, _CMP_NGE_UQ);
        __mmask16 in_y = _mm512_cmp_ps_mask(y, none, _CMP_NGE_UQ);
        a = _mm512_maskz_mov_epi32(in_x, a), b = _mm512_maskz_mov_epi32(in_y, b);
        x = _mm512_maskz_mov_ps(in_x, x), y = _mm512_maskz_mov_ps(in_y, y);
    }
    /* compares bits, of which those of a NaN are above those of MANY_MOST */
    *most = _mm512_max_epu32(*most, _mm512_castps_si512(x));
    *most = _mm512_max_epu32(*most, _mm512_castps_si512(y));
    __m512i word = normal_line_words(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
    *p = _mm512_castsi512_ps(_mm512_and_si512(word, _mm512_set1_epi32((int)0xffff0000)));
    *q = _mm512_castsi512_ps(_mm512_slli_epi32(word, 16));
    return word;
}

/* Computes p of the first 16 * nb scores, and in `lane` their sums per lane of the canonical order. Returns whether
 * `range` holds. nb and `range` are constants after inlining. */
static ALWAYS_INLINE bool shares_of(const float *s, __m512 m, const int nb, const many_range range,
                                    uint32_t *to, __m512 lane[16]) {
    __m512i most = _mm512_setzero_si512();
    for (int k = 0; k < 8; k++) {
        const int j = k / 2 * 4 + k % 2;
        const float *from = s + j * VECTOR_BAND;
        __m512 p, q, sum_p = _mm512_setzero_ps(), sum_q = sum_p;
        UNROLL for (int b = 0; b < nb; b++) {
            __m512i word = two_shares(m, from + 16 * b * VECTOR_BAND, range, &most, &p, &q);
            _mm512_storeu_si512(to + (8 * b + k) * VECTOR_BAND, word);
            sum_p = b ? _mm512_add_ps(sum_p, p) : p;
            sum_q = b ? _mm512_add_ps(sum_q, q) : q;
        }
        lane[j] = sum_p;
        lane[j + 2] = sum_q;
    }
    return !_mm512_cmpgt_epu32_mask(most, _mm512_castps_si512(_mm512_set1_ps(MANY_MOST)));
}

/* Adds the lanes of a canonical sum, in the tree of kernels/ops.h. */
static ALWAYS_INLINE __m512 tree_of(__m512 lane[16]) {
    UNROLL for (int s = 8; s > 0; s /= 2) {
        UNROLL for (int i = 0; i < s; i++) lane[i] = _mm512_add_ps(lane[i], lane[i + s]);
    }
    return lane[0];
}

static ALWAYS_INLINE bool some_shares(const float *s, __m512 m, int nb, const many_range range,
                                      uint32_t *to, __m512 lane[16]) {
    switch (nb) {
    case 1: return shares_of(s, m, 1, range, to, lane);
    case 2: return shares_of(s, m, 2, range, to, lane);
    case 3: return shares_of(s, m, 3, range, to, lane);
    default: return shares_of(s, m, 4, range, to, lane);
    }
}

/* p = exp(s - m) of scores [16 * nb, VECTOR_BAND] of 16 vectors, as words [FV_KV_BLOCK / 2, VECTOR_BAND], those of rows
 * 4 k, 4 k + 2 and 4 k + 1, 4 k + 3 in turn, with zeros after them. Returns the sums of p. */
static NEVER_INLINE __m512 many_shares(const float *s, __m512 m, int nb, uint32_t *to) {
    __m512 lane[16];
    for (int k = 8 * nb; k < FV_KV_BLOCK / 2; k++)
        _mm512_storeu_si512(to + k * VECTOR_BAND, _mm512_setzero_si512());
    if (nb == 0) return _mm512_setzero_ps();
    if (nb == 4 && shares_of(s, m, 4, MANY_NORMAL, to, lane)) return tree_of(lane);
    if (some_shares(s, m, nb, MANY_SEEN, to, lane)) return tree_of(lane);
    some_shares(s, m, nb, MANY_ANY, to, lane);
    return tree_of(lane);
}

#endif
