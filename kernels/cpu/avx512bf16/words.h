#ifndef FOVEA_KERNELS_CPU_AVX512BF16_WORDS_H
#define FOVEA_KERNELS_CPU_AVX512BF16_WORDS_H

/* Canonical products in bf16 with AVX-512 BF16: two steps of a chain per instruction, twice as many as a
 * fused multiply-add of f32.
 *
 * VDPBF16PS adds the product of the upper halves to the sum and then that of the lower halves, each
 * rounded, with subnormals flushed whatever MXCSR says. So it advances a chain of even, or of odd, numbers
 * if number k is the upper half of a word and k + 2 the lower one:
 *
 *     16 words of a row's step      (0, 2) (4, 6) .. (28, 30)   even
 *                                   (1, 3) (5, 7) .. (29, 31)   odd
 *     16 of a panel's step          a vector of 16 columns in place of each word, even and odd in turn */
#include <string.h>

#include "kernels/cpu/avx512bf16/narrow.h"
#include "kernels/cpu/lanes/lanes.h"

enum {
    WORDS_STEP = 32,
    STEP_WORDS = WORDS_STEP / 2,
    HALF_WORDS = STEP_WORDS / 2, /* words of even numbers */
    WORDS_PANELS = 4,
    ONE_PANEL_ROWS = 8, /* rows of a tile of one panel: 16 sums */
    FOUR_PANEL_ROWS = 3 /* rows of a tile of four panels: 24 sums */
};

/* A tile's sums, and the words of x and w: rows of x are ldx words apart, panels of w are side by side. */
typedef struct words_tile {
    const uint32_t *x, *w;  /* [rows, steps, WORDS], [steps, WORDS, panels, 16] */
    size_t ldx, ldw, steps; /* ldw: from a panel's word to its next */
    float *acc;
    size_t ld_row, ld_panel;
} words_tile;

static inline __m512 dot_words(__m512 sum, __m512i x, __m512i w) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
}

/* Words of 32 bf16 of a row, even ones first. */
static inline __m512i even_odd_words(__m512i row) {
    static const uint16_t order[32] = {2, 0, 6, 4, 10, 8, 14, 12, 18, 16, 22, 20, 26, 24, 30, 28,
                                       3, 1, 7, 5, 11, 9, 15, 13, 19, 17, 23, 21, 27, 25, 31, 29};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), row);
}

/* The shuffle from 32 bf16 to words of even and of odd numbers in turn: k + 2 below k, k + 3 below k + 1. */
static inline __m512i alternating_order(void) {
    static const uint16_t order[32] = {2,  0,  3,  1,  6,  4,  7,  5,  10, 8,  11,
                                       9,  14, 12, 15, 13, 18, 16, 19, 17, 22, 20,
                                       23, 21, 26, 24, 27, 25, 30, 28, 31, 29};
    return _mm512_loadu_si512(order);
}

static inline __m512i alternating_words_of(__m512i row) {
    return _mm512_permutexvar_epi16(alternating_order(), row);
}

/* Two words as 64 bits, for one broadcast. */
static inline long long two_words(const uint32_t *at) {
    long long both;
    memcpy(&both, at, sizeof both);
    return both;
}

/* Words from two lines of 16 bf16; the first line is the upper half. */
static inline __m512i words_of_lines(__m512i lines) {
    static const uint16_t order[32] = {16, 0,  17, 1,  18, 2,  19, 3,  20, 4,  21,
                                       5,  22, 6,  23, 7,  24, 8,  25, 9,  26, 10,
                                       27, 11, 28, 12, 29, 13, 30, 14, 31, 15};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), lines);
}

/* Words of lines k and k + 2 of a panel of f32. */
static inline __m512i line_words(__m512 upper, __m512 lower) {
    return words_of_lines(narrow(upper, lower));
}

/* line_words() for numbers that are 0 or at least 2^-126. */
static inline __m512i normal_line_words(__m512 upper, __m512 lower) {
    return words_of_lines(narrow_normal(upper, lower));
}

/* Packs steps of n rows of f32 as words; rows are ld_to words apart. */
static inline void pack_rows_as_words(const float *x, size_t ld, int n, size_t steps, uint32_t *to,
                                      size_t ld_to) {
    for (int i = 0; i < n; i++, x += ld, to += ld_to)
        for (size_t s = 0; s < steps; s++) {
            const float *from = x + s * WORDS_STEP;
            __m512i row = narrow(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16));
            _mm512_store_si512(to + s * STEP_WORDS, even_odd_words(row));
        }
}

/* Adds mr rows times np panels to the sums; both are constants after inlining. */
static ALWAYS_INLINE void words_multiply_add(const words_tile *t, const int mr, const int np) {
    const uint32_t *x = t->x, *w = t->w;
    const size_t ldx = t->ldx, ldw = t->ldw;
    for (size_t s = 0; s < t->steps; s++, x += STEP_WORDS) {
        __m512 even[24], odd[24];
        UNROLL for (int i = 0; i < mr * np; i++) even[i] = odd[i] = _mm512_setzero_ps();
        for (int k = 0; k < HALF_WORDS; k++, w += 2 * ldw) {
            __m512i of[WORDS_PANELS];
            UNROLL for (int p = 0; p < np; p++) of[p] = _mm512_load_si512(w + p * 16);
            UNROLL for (int i = 0; i < mr; i++) {
                __m512i all = _mm512_set1_epi32((int)x[(size_t)i * ldx + (size_t)k]);
                UNROLL for (int p = 0; p < np; p++) even[i * np + p] =
                    dot_words(even[i * np + p], all, of[p]);
            }
            UNROLL for (int p = 0; p < np; p++) of[p] = _mm512_load_si512(w + ldw + p * 16);
            UNROLL for (int i = 0; i < mr; i++) {
                __m512i all = _mm512_set1_epi32((int)x[(size_t)i * ldx + HALF_WORDS + (size_t)k]);
                UNROLL for (int p = 0; p < np; p++) odd[i * np + p] =
                    dot_words(odd[i * np + p], all, of[p]);
            }
        }
        UNROLL for (int i = 0; i < mr * np; i++) {
            float *at = t->acc + (size_t)(i / np) * t->ld_row + (size_t)(i % np) * t->ld_panel;
            __m512 sum = _mm512_add_ps(even[i], odd[i]);
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum));
        }
    }
}

static void by_one_panel(const words_tile *t, int rows) {
    switch (rows) {
    case 1: words_multiply_add(t, 1, 1); break;
    case 2: words_multiply_add(t, 2, 1); break;
    case 3: words_multiply_add(t, 3, 1); break;
    case 4: words_multiply_add(t, 4, 1); break;
    case 5: words_multiply_add(t, 5, 1); break;
    case 6: words_multiply_add(t, 6, 1); break;
    case 7: words_multiply_add(t, 7, 1); break;
    default: words_multiply_add(t, ONE_PANEL_ROWS, 1);
    }
}

static void by_four_panels(const words_tile *t, int rows) {
    switch (rows) {
    case 1: words_multiply_add(t, 1, WORDS_PANELS); break;
    case 2: words_multiply_add(t, 2, WORDS_PANELS); break;
    default: words_multiply_add(t, FOUR_PANEL_ROWS, WORDS_PANELS);
    }
}

/* Multiplies M rows by one panel or four. Not inlined: even and odd sums are added with subnormals flushed,
 * so the compiler must not move additions across the caller's changes of MXCSR. */
static NEVER_INLINE void by_panels(words_tile t, int M, int panels) {
    int most = panels == 1 ? ONE_PANEL_ROWS : FOUR_PANEL_ROWS;
    for (int rows; M > 0; M -= rows) {
        rows = M < most ? M : most;
        (panels == 1 ? by_one_panel : by_four_panels)(&t, rows);
        t.x += (size_t)rows * t.ldx;
        t.acc += (size_t)rows * t.ld_row;
    }
}

static inline void words_products(words_tile t, int M, int panels) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    by_panels(t, M, panels);
    _mm_setcsr(before);
}

#endif
