#ifndef FOVEA_KERNELS_CPU_AVX512BF16_SIXTEEN_ROWS_H
#define FOVEA_KERNELS_CPU_AVX512BF16_SIXTEEN_ROWS_H

/* Canonical products in bf16 with AVX-512 BF16 (avx512bf16/words.h) of a few vectors with 16 rows of bf16 read in
 * place. A register has eight rows, a word of even and one of odd numbers of each: four numbers of a row
 * stay together, so that a step of 16 rows takes 32 shuffles. eight_rows() chooses which rows share a register
 * so that the sums of two registers come out in order. */
#include "kernels/cpu/avx512bf16/words.h"

enum { SIXTEEN_ROWS = 16, PASS_VECTORS = 4 /* the most vectors per pass over the rows */ };

static inline __m512i alternating_words(const float *x) {
    return alternating_words_of(narrow(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)));
}

/* Loads 16 numbers of each of two rows. */
static ALWAYS_INLINE __m512i two_halves(const char *lower, const char *upper) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)lower)),
                              _mm256_loadu_si256((const void *)upper), 1);
}

/* 16 rows, at + i * stride. */
typedef struct rows_in_place {
    const char *at;
    size_t stride;
    int rows; /* rows that exist; the last one replaces missing ones */
} rows_in_place;

static ALWAYS_INLINE const char *row_in_place(const rows_in_place *k, int i, const bool whole) {
    return k->at + (size_t)(whole || i < k->rows ? i : k->rows - 1) * k->stride;
}

/* Words of numbers 4 i to 4 i + 3, i < 4, of rows `first` + 0, 1, 4, 5, 8, 9, 12 and 13, in to[i]: each 128 bits
 * hold an even and an odd word of two rows. */
static ALWAYS_INLINE void eight_rows(const rows_in_place *k, int first, size_t byte,
                                     const bool whole, __m512i to[4]) {
    static const int of[4] = {0, 1, 8, 9};
    const __m512i lower =
        _mm512_set_epi16(57, 59, 56, 58, 25, 27, 24, 26, 49, 51, 48, 50, 17, 19, 16, 18, 41, 43, 40,
                         42, 9, 11, 8, 10, 33, 35, 32, 34, 1, 3, 0, 2);
    const __m512i upper = _mm512_add_epi16(lower, _mm512_set1_epi16(4));
    __m512i half[4], two[4];
    UNROLL for (int i = 0; i < 4; i++) {
        half[i] = two_halves(row_in_place(k, first + of[i], whole) + byte,
                             row_in_place(k, first + of[i] + 4, whole) + byte);
    }
    UNROLL for (int i = 0; i < 2; i++) {
        two[i] = _mm512_permutex2var_epi16(half[2 * i], lower, half[2 * i + 1]);
        two[2 + i] = _mm512_permutex2var_epi16(half[2 * i], upper, half[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 2; i++) {
        to[i] = _mm512_shuffle_i64x2(two[2 * i], two[2 * i + 1], 0x88);
        to[2 + i] = _mm512_shuffle_i64x2(two[2 * i], two[2 * i + 1], 0xdd);
    }
}

/* Adds a step to acc[i]: numbers [byte / 2, byte / 2 + 32) of the rows times those of mr vectors, packed by
 * alternating_words(), `ld` words apart. mr and `whole`, whether all rows exist, are constants after inlining. */
static ALWAYS_INLINE void sixteen_rows_step(const rows_in_place *rows, const bool whole,
                                            size_t byte, const uint32_t *x, size_t ld, const int mr,
                                            __m512 *acc) {
    __m512 a[PASS_VECTORS], b[PASS_VECTORS];
    UNROLL for (int i = 0; i < mr; i++) a[i] = b[i] = _mm512_setzero_ps();
    UNROLL for (int half = 0; half < 2; half++) {
        __m512i of_a[4], of_b[4];
        eight_rows(rows, 0, byte + 32 * half, whole, of_a);
        eight_rows(rows, 2, byte + 32 * half, whole, of_b);
        UNROLL for (int w = 0; w < 4; w++) {
            UNROLL for (int i = 0; i < mr; i++) {
                __m512i both = _mm512_set1_epi64(two_words(x + (size_t)i * ld + 8 * half + 2 * w));
                a[i] = dot_words(a[i], both, of_a[w]);
                b[i] = dot_words(b[i], both, of_b[w]);
            }
        }
    }
    UNROLL for (int i = 0; i < mr; i++) {
        __m512 even = _mm512_shuffle_ps(a[i], b[i], 0x88);
        __m512 odd = _mm512_shuffle_ps(a[i], b[i], 0xdd);
        acc[i] = _mm512_add_ps(acc[i], _mm512_add_ps(even, odd));
    }
}

#endif
