#ifndef FOVEA_KERNELS_CPU_AVX512BF16_EIGHT_ROWS_H
#define FOVEA_KERNELS_CPU_AVX512BF16_EIGHT_ROWS_H

/* Canonical products in bf16 with AVX-512 BF16 (avx512bf16/words.h) of vectors with eight rows of bf16 read in
 * place, a step of the rows at a time. A register has a word of even and one of odd numbers of eight vectors or
 * of eight rows:
 *
 *     many vectors   packed once, [steps, HALF_WORDS, 8, 2] words: (4 k, 4 k + 2) and (4 k + 1, 4 k + 3) of
 *                    each. Two words of a row are broadcast to all eight vectors; a step of a row takes one
 *                    shuffle.
 *     few vectors    rows are transposed: a step of eight rows takes 32 shuffles. Two words of a vector are
 *                    broadcast to all eight rows. */
#include <string.h>

#include "kernels/cpu/avx512bf16/words.h"

enum {
    EIGHT = 8,                             /* vectors or rows of a register, and rows of a tile */
    EIGHT_ROWS_WORDS = EIGHT * STEP_WORDS, /* of a step of eight vectors */
    EIGHT_ROWS_FEW = 2                     /* the most vectors for which rows are transposed */
};

/* How rows are read. If all of them have the same offset from a cache line, EIGHT_ROWS_ACROSS reads each line once
 * and keeps it until the next step; otherwise each step would read two lines. */
typedef enum eight_rows_place {
    EIGHT_ROWS_WHOLE, /* by steps; the last step is whole */
    EIGHT_ROWS_PART,  /* by steps; the last step is partial */
    EIGHT_ROWS_ACROSS /* by cache lines; the last step is whole */
} eight_rows_place;

typedef struct eight_rows_tile {
    /* Rows, or with EIGHT_ROWS_ACROSS the cache lines in which they begin, `behind` numbers later. volatile, so that
     * compilers do not keep the pointers in vector registers. */
    const char *volatile row[EIGHT];
    size_t behind;
    const uint32_t *x; /* eight vectors, or words of one (alternating_words_of()) */
    size_t ldx;        /* words to the next eight vectors, or vector */
    size_t steps;
    __mmask32 last; /* mask of the last step's, or line's, numbers; a row is not read beyond them */
    /* Memory to prefetch: eight lines per step, `each` bytes apart. */
    const char *ahead;
    size_t each;
} eight_rows_tile;

/* Turns two rows into words, 64 bits an even and an odd word: *upper gets the even ones of these of both rows in turn,
 * *lower the odd ones. */
static ALWAYS_INLINE void eight_rows_merge(__m512i *upper, __m512i *lower) {
    static const uint16_t order[32] = {2,  0,  3,  1,  34, 32, 35, 33, 10, 8,  11,
                                       9,  42, 40, 43, 41, 18, 16, 19, 17, 50, 48,
                                       51, 49, 26, 24, 27, 25, 58, 56, 59, 57};
    const __m512i even = _mm512_loadu_si512(order);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(4));
    const __m512i a = *upper, b = *lower;
    *upper = _mm512_permutex2var_epi16(a, even, b);
    *lower = _mm512_permutex2var_epi16(a, odd, b);
}

/* Transposes 64-bit elements of eight rows that eight_rows_merge() has merged in pairs. */
static ALWAYS_INLINE void eight_rows_transpose_merged(const __m512i t[EIGHT], __m512i r[EIGHT]) {
    UNROLL for (int i = 0; i < 2; i++) {
        __m512i a = _mm512_shuffle_i64x2(t[i], t[2 + i], 0x88);
        __m512i b = _mm512_shuffle_i64x2(t[4 + i], t[6 + i], 0x88);
        __m512i c = _mm512_shuffle_i64x2(t[i], t[2 + i], 0xdd);
        __m512i d = _mm512_shuffle_i64x2(t[4 + i], t[6 + i], 0xdd);
        r[i] = _mm512_shuffle_i64x2(a, b, 0x88);
        r[4 + i] = _mm512_shuffle_i64x2(a, b, 0xdd);
        r[2 + i] = _mm512_shuffle_i64x2(c, d, 0x88);
        r[6 + i] = _mm512_shuffle_i64x2(c, d, 0xdd);
    }
}

/* Transposes 64-bit elements of eight registers. */
static ALWAYS_INLINE void eight_rows_transpose(__m512i r[EIGHT]) {
    __m512i t[EIGHT];
    UNROLL for (int i = 0; i < EIGHT; i += 2) {
        t[i] = _mm512_unpacklo_epi64(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 1]);
    }
    eight_rows_transpose_merged(t, r);
}

/* Mask of the numbers to read of a step, or with EIGHT_ROWS_ACROSS of the step's second line. */
static ALWAYS_INLINE __mmask32 eight_rows_in(const eight_rows_tile *t, size_t step) {
    __mmask32 in = step + 1 < t->steps ? ~0u : t->last;
    __asm__("" : "+k"(in)); /* computes it once, not for each row */
    return in;
}

/* Words of a row's step. With EIGHT_ROWS_ACROSS *line holds the line of its first number, and is replaced by the
 * next. */
static ALWAYS_INLINE __m512i eight_rows_row(const eight_rows_tile *t, size_t row, size_t step,
                                            __mmask32 in, const eight_rows_place place,
                                            __m512i order, __m512i *line) {
    const char *at = t->row[row] + step * WORDS_STEP * sizeof(uint16_t);
    if (place == EIGHT_ROWS_WHOLE) return _mm512_permutexvar_epi16(order, _mm512_loadu_si512(at));
    if (place == EIGHT_ROWS_PART)
        return _mm512_permutexvar_epi16(order, _mm512_maskz_loadu_epi16(in, at));
    const __m512i lower = *line;
    *line = _mm512_maskz_loadu_epi16(in, at + 64);
    return _mm512_permutex2var_epi16(lower, order, *line);
}

/* Prepares the first step; returns `order` for eight_rows_row(). */
static ALWAYS_INLINE __m512i eight_rows_begin(const eight_rows_tile *t,
                                              const eight_rows_place place, __m512i line[EIGHT]) {
    if (place != EIGHT_ROWS_ACROSS) return alternating_order();
    UNROLL for (int i = 0; i < EIGHT; i++) {
        line[i] = _mm512_maskz_loadu_epi16(~0u << t->behind, t->row[i]);
    }
    return _mm512_add_epi16(alternating_order(), _mm512_set1_epi16((short)t->behind));
}

/* ---- few vectors ----------------------------------------------------------------------- */

/* Adds a step of eight rows to the sums of mr vectors, each sum twice; of: words 2 k and 2 k + 1 of all rows. */
static ALWAYS_INLINE void eight_rows_step(const __m512i of[EIGHT], const uint32_t *x, size_t ldx,
                                          const int mr, __m512 *sums) {
    __m512 a[EIGHT_ROWS_FEW];
    UNROLL for (int i = 0; i < mr; i++) a[i] = _mm512_setzero_ps();
    UNROLL for (int k = 0; k < HALF_WORDS; k++) {
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i both = _mm512_set1_epi64(two_words(x + (size_t)i * ldx + 2 * k));
            a[i] = dot_words(a[i], both, of[k]);
        }
    }
    UNROLL for (int i = 0; i < mr; i++) {
        __m512 even = _mm512_shuffle_ps(a[i], a[i], 0x88);
        __m512 odd = _mm512_shuffle_ps(a[i], a[i], 0xdd);
        sums[i] = _mm512_add_ps(sums[i], _mm512_add_ps(even, odd));
    }
}

/* Takes each of eight sums once. */
static ALWAYS_INLINE __m256 eight_rows_once(__m512 twice) {
    const __m512i once = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(once, twice));
}

/* Sums [mr, EIGHT] of mr vectors with eight rows. mr and `place` are constants after inlining. */
static ALWAYS_INLINE void eight_rows_few(const eight_rows_tile *t, const int mr,
                                         const eight_rows_place place, float *to) {
    const uint32_t *x = t->x;
    const size_t ldx = t->ldx, steps = t->steps, each = t->each;
    const char *ahead = t->ahead;
    __m512i line[EIGHT];
    const __m512i order = eight_rows_begin(t, place, line);
    __m512 sums[EIGHT_ROWS_FEW];
    UNROLL for (int i = 0; i < mr; i++) sums[i] = _mm512_setzero_ps();
    for (size_t s = 0; s < steps; s++, x += STEP_WORDS) {
        const __mmask32 in = eight_rows_in(t, s);
        __m512i of[EIGHT];
        UNROLL for (size_t i = 0; i < EIGHT; i++, ahead += each) {
            of[i] = eight_rows_row(t, i, s, in, place, order, &line[i]);
            _mm_prefetch((const void *)ahead, _MM_HINT_T1);
        }
        eight_rows_transpose(of);
        eight_rows_step(of, x, ldx, mr, sums);
    }
    UNROLL for (int i = 0; i < mr; i++) _mm256_storeu_ps(to + i * EIGHT, eight_rows_once(sums[i]));
}

/* ---- many vectors ---------------------------------------------------------------------- */

/* Transposes sums to lines [vectors, EIGHT]: sums[i] is of row i and both eights, or of rows i and i + 4 and the only
 * eight. */
static ALWAYS_INLINE void eight_rows_store(const __m512 *sums, const int eights, float *to) {
    __m512i r[16];
    UNROLL for (int i = 0; i < 16; i++) {
        r[i] = i < 4 * eights ? _mm512_castps_si512(sums[i]) : _mm512_setzero_si512();
    }
    i32x16_transpose(r);
    UNROLL for (int i = 0; i < 16; i++) {
        int vector = i / 4 * 2 + i % 2, second = i / 2 % 2;
        if (eights == 2)
            _mm256_storeu_si256((void *)(to + (EIGHT * second + vector) * EIGHT),
                                _mm512_castsi512_si256(r[i]));
        else
            _mm_storeu_si128((void *)(to + vector * EIGHT + 4 * second),
                             _mm512_castsi512_si128(r[i]));
    }
}

/* Sums [8 eights, EIGHT] of one or two times eight vectors with eight rows. `eights` and `place` are
 * constants after inlining. */
static ALWAYS_INLINE void eight_rows_many(const eight_rows_tile *t, const int eights,
                                          const eight_rows_place place, float *to) {
    /* two buffers, because reading words right after writing them would stall */
    _Alignas(64) uint32_t words[2][EIGHT][STEP_WORDS];
    const uint32_t *x = t->x;
    const size_t ldx = t->ldx, steps = t->steps, each = t->each;
    const char *ahead = t->ahead;
    __m512i line[EIGHT];
    const __m512i order = eight_rows_begin(t, place, line);
    __m512 sums[EIGHT];
    UNROLL for (int i = 0; i < 4 * eights; i++) sums[i] = _mm512_setzero_ps();
    for (size_t i = 0; i < EIGHT; i++)
        _mm512_store_si512(words[0][i],
                           eight_rows_row(t, i, 0, eight_rows_in(t, 0), place, order, &line[i]));
    for (size_t s = 0; s < steps; s++) {
        const size_t next = s + 1 < steps ? s + 1 : s;
        const __mmask32 in = eight_rows_in(t, next);
        uint32_t(*now)[STEP_WORDS] = words[s % 2], (*then)[STEP_WORDS] = words[(s + 1) % 2];
        __m512 a[2 * EIGHT];
        UNROLL for (int i = 0; i < EIGHT * eights; i++) a[i] = _mm512_setzero_ps();
        UNROLL for (size_t k = 0; k < HALF_WORDS; k++, x += 2 * EIGHT, ahead += each) {
            __m512i of[2];
            UNROLL for (int e = 0; e < eights; e++) {
                of[e] = _mm512_load_si512(x + (size_t)e * ldx);
            }
            UNROLL for (int i = 0; i < EIGHT; i++) {
                __m512i both = _mm512_set1_epi64(two_words(&now[i][2 * k]));
                UNROLL for (int e = 0; e < eights; e++) a[i * eights + e] =
                    dot_words(a[i * eights + e], of[e], both);
            }
            _mm512_store_si512(then[k], eight_rows_row(t, k, next, in, place, order, &line[k]));
            _mm_prefetch((const void *)ahead, _MM_HINT_T1);
        }
        UNROLL for (int i = 0; i < 4 * eights; i++) {
            __m512 one = a[eights == 2 ? 2 * i : i], other = a[eights == 2 ? 2 * i + 1 : i + 4];
            __m512 even = _mm512_shuffle_ps(one, other, 0x88);
            __m512 odd = _mm512_shuffle_ps(one, other, 0xdd);
            sums[i] = _mm512_add_ps(sums[i], _mm512_add_ps(even, odd));
        }
    }
    eight_rows_store(sums, eights, to);
}

#endif
