#ifndef FOVEA_KERNELS_CPU_AVX512BF16_VECTOR_LANES_H
#define FOVEA_KERNELS_CPU_AVX512BF16_VECTOR_LANES_H

/* Canonical products in bf16 with AVX-512 BF16 (avx512bf16/words.h) where lanes are vectors: a register has a word of
 * each of 16, a group; three groups side by side are a band. Words of the rows they are multiplied by are broadcast. A
 * tile is four rows with up to three groups, 24 sums of even and of odd numbers; or eight rows with one group. */
#include "kernels/cpu/avx512bf16/words.h"

enum {
    VECTOR_ROWS = 4,
    VECTOR_GROUPS = 3,
    VECTOR_BAND = 16 * VECTOR_GROUPS,
    VECTOR_ALONE = 8,
    VECTOR_TILE = 12
};

/* Words of the rows that vectors are multiplied by. The word of numbers 4 k and 4 k + 2 of row i is
 * at[i * row + k * pair]; that of 4 k + 1 and 4 k + 3 is `odd` words further. */
typedef struct broadcast_words {
    const uint32_t *at;
    size_t row, pair, odd;
} broadcast_words;

/* Makes the compiler keep variables in memory between steps of a tile, as a step needs all registers. */
static ALWAYS_INLINE void leave_registers(void) { __asm__ volatile("" : : : "memory"); }

/* Sums of even and odd numbers, [mr, ng], of 4 n numbers of a step. w: words of vectors, [2 n, VECTOR_BAND], even and
 * odd in turn. mr and ng are constants after inlining. */
static ALWAYS_INLINE void vector_step(const broadcast_words *x, const uint32_t *w, int n,
                                      const int mr, const int ng, __m512 *sum) {
    const uint32_t *at = x->at;
    const size_t row = x->row, pair = x->pair, odd = x->odd;
    __m512 a[VECTOR_TILE], b[VECTOR_TILE];
    UNROLL for (int i = 0; i < mr * ng; i++) a[i] = b[i] = _mm512_setzero_ps();
    ROLLED for (; n > 0; n--, at += pair, w += 2 * VECTOR_BAND) {
        __m512i of[VECTOR_GROUPS];
        UNROLL for (int g = 0; g < ng; g++) of[g] = _mm512_loadu_si512(w + g * 16);
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i all = _mm512_set1_epi32((int)at[(size_t)i * row]);
            UNROLL for (int g = 0; g < ng; g++) a[i * ng + g] =
                dot_words(a[i * ng + g], all, of[g]);
        }
        UNROLL for (int g = 0; g < ng; g++) of[g] = _mm512_loadu_si512(w + VECTOR_BAND + g * 16);
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i all = _mm512_set1_epi32((int)at[(size_t)i * row + odd]);
            UNROLL for (int g = 0; g < ng; g++) b[i * ng + g] =
                dot_words(b[i * ng + g], all, of[g]);
        }
    }
    UNROLL for (int i = 0; i < mr * ng; i++) sum[i] = _mm512_add_ps(a[i], b[i]);
}

#endif
