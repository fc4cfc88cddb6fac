#ifndef FOVEA_KERNELS_CPU_AVX512BF16_VECTOR_LANES_H
#define FOVEA_KERNELS_CPU_AVX512BF16_VECTOR_LANES_H

/* Canonical products in bf16 with AVX-512 BF16 (avx512bf16/words.h) where lanes are vectors: a register has a word of
 * each of 16, a group; three groups side by side are a band. Words of the rows they are multiplied by are broadcast. A
 * tile is four rows with up to three groups, 24 sums of even and of odd numbers; or eight rows with one group. */
#include "kernels/cpu/avx512bf16/words.h"

enum {
    MANY_ROWS = 4,
    MANY_GROUPS = 3,
    MANY_BAND = 16 * MANY_GROUPS,
    MANY_ALONE = 8,
    MANY_TILE = 12
};

/* Words of the rows that vectors are multiplied by. The word of numbers 4 k and 4 k + 2 of row i is
 * at[i * row + k * pair]; that of 4 k + 1 and 4 k + 3 is `odd` words further. */
typedef struct many_words {
    const uint32_t *at;
    size_t row, pair, odd;
} many_words;

/* Makes the compiler keep variables in memory between steps of a tile, as a step needs all registers. */
static ALWAYS_INLINE void leave_registers(void) { __asm__ volatile("" : : : "memory"); }

/* Sums of even and odd numbers, [mr, ng], of 4 n numbers of a step. w: words of vectors, [2 n, MANY_BAND], even and
 * odd in turn. mr and ng are constants after inlining. */
static ALWAYS_INLINE void many_step(const many_words *x, const uint32_t *w, int n, const int mr,
                                    const int ng, __m512 *sum) {
    const uint32_t *at = x->at;
    const size_t row = x->row, pair = x->pair, odd = x->odd;
    __m512 a[MANY_TILE], b[MANY_TILE];
    UNROLL for (int i = 0; i < mr * ng; i++) a[i] = b[i] = _mm512_setzero_ps();
    ROLLED for (; n > 0; n--, at += pair, w += 2 * MANY_BAND) {
        __m512i of[MANY_GROUPS];
        UNROLL for (int g = 0; g < ng; g++) of[g] = _mm512_loadu_si512(w + g * 16);
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i all = _mm512_set1_epi32((int)at[(size_t)i * row]);
            UNROLL for (int g = 0; g < ng; g++) a[i * ng + g] =
                pairs_go_on(a[i * ng + g], all, of[g]);
        }
        UNROLL for (int g = 0; g < ng; g++) of[g] = _mm512_loadu_si512(w + MANY_BAND + g * 16);
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i all = _mm512_set1_epi32((int)at[(size_t)i * row + odd]);
            UNROLL for (int g = 0; g < ng; g++) b[i * ng + g] =
                pairs_go_on(b[i * ng + g], all, of[g]);
        }
    }
    UNROLL for (int i = 0; i < mr * ng; i++) sum[i] = _mm512_add_ps(a[i], b[i]);
}

#endif
