#ifndef FOVEA_KERNELS_CPU_PAIRS_EIGHTS_AVX512_H
#define FOVEA_KERNELS_CPU_PAIRS_EIGHTS_AVX512_H

/* Canonical products in bf16 with AVX-512 BF16 (pairs_avx512.h) of vectors, eight to a register, with rows of
 * bf16 where they lie. The register has a word of even and one of odd numbers of each vector, and two words of
 * a row are broadcast to all eight. So it is vectors that are transposed, once for all rows; a step of a row
 * takes one shuffle:
 *
 *     vectors   [steps, PAIRS_HALF, 8, 2] words: (4 k, 4 k + 2) and (4 k + 1, 4 k + 3) of each
 *     a row     [PAIRS_HALF, 2] words of a step, laid in memory that stays in L1 */
#include "kernels/cpu/pairs_rows_avx512.h"

enum {
    EIGHT = 8, /* vectors of a register, and rows that meet them together */
    EIGHTS_WORDS = EIGHT * PAIRS_WORDS, /* of a step of eight vectors */
    EIGHTS_SOON =
        2 /* steps from laying a row's words to reading them, or reading waits for writing */
};

typedef struct eights_tile {
    const char *row[EIGHT];
    const uint32_t *x; /* eight vectors, */
    size_t ldx;        /* and words from there to the next eight */
    size_t steps;
    __mmask32 last;    /* numbers that the last step has; a row is not read beyond them */
    const char *ahead; /* what is fetched meanwhile: a line after every `each` bytes, */
    size_t each;       /* one each time; eight times a step */
} eights_tile;

/* Words of a step of eight vectors, from those of each (pairs_turns_of()), which are ld apart. */
static inline void eights_words(const uint32_t *from, size_t ld, uint32_t *to) {
    for (size_t k = 0; k < PAIRS_HALF; k++)
        for (size_t i = 0; i < EIGHT; i++, to += 2)
            memcpy(to, from + i * ld + 2 * k, 2 * sizeof *to);
}

/* sums[i] of row i and both eights, or of rows i and i + 4 and the only eight, as lines [vectors, EIGHT]. */
static ALWAYS_INLINE void eights_store(const __m512 *sums, const int eights, float *to) {
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

/* Sums [8 eights, EIGHT] of one or two times eight vectors with eight rows; `eights` is a constant after
 * inlining. */
static ALWAYS_INLINE void eights_multiply(const eights_tile *t, const int eights, float *to) {
    _Alignas(64) uint32_t words[2 * EIGHTS_SOON][EIGHT][PAIRS_WORDS];
    const uint32_t *x = t->x;
    const size_t ldx = t->ldx, steps = t->steps, each = t->each;
    const char *ahead = t->ahead;
    __m512 sums[EIGHT];
    UNROLL for (int i = 0; i < 4 * eights; i++) sums[i] = _mm512_setzero_ps();
    for (size_t s = 0; s < EIGHTS_SOON && s < steps; s++)
        for (int i = 0; i < EIGHT; i++)
            _mm512_store_si512(words[s][i], pairs_turns_of(_mm512_maskz_loadu_epi16(
                                                s + 1 < steps ? ~0u : t->last,
                                                t->row[i] + s * PAIRS_STEP * sizeof(uint16_t))));
    for (size_t s = 0; s < steps; s++) {
        const size_t soon = s + EIGHTS_SOON;
        const __mmask32 in = soon + 1 < steps ? ~0u : soon < steps ? t->last : 0;
        uint32_t(*now)[PAIRS_WORDS] = words[s % (2 * EIGHTS_SOON)];
        uint32_t(*then)[PAIRS_WORDS] = words[soon % (2 * EIGHTS_SOON)];
        __m512 a[2 * EIGHT];
        UNROLL for (int i = 0; i < EIGHT * eights; i++) a[i] = _mm512_setzero_ps();
        UNROLL for (int k = 0; k < PAIRS_HALF; k++, x += 2 * EIGHT, ahead += each) {
            __m512i of[2];
            UNROLL for (int e = 0; e < eights; e++) {
                of[e] = _mm512_load_si512(x + (size_t)e * ldx);
            }
            UNROLL for (int i = 0; i < EIGHT; i++) {
                __m512i both = _mm512_set1_epi64(two_words(&now[i][2 * k]));
                UNROLL for (int e = 0; e < eights; e++) a[i * eights + e] =
                    pairs_go_on(a[i * eights + e], of[e], both);
            }
            const char *at = t->row[k] + soon * PAIRS_STEP * sizeof(uint16_t);
            _mm512_store_si512(then[k], pairs_turns_of(_mm512_maskz_loadu_epi16(in, at)));
            _mm_prefetch((const void *)ahead, _MM_HINT_T1);
        }
        UNROLL for (int i = 0; i < 4 * eights; i++) {
            __m512 one = a[eights == 2 ? 2 * i : i], other = a[eights == 2 ? 2 * i + 1 : i + 4];
            __m512 even = _mm512_shuffle_ps(one, other, 0x88);
            __m512 odd = _mm512_shuffle_ps(one, other, 0xdd);
            sums[i] = _mm512_add_ps(sums[i], _mm512_add_ps(even, odd));
        }
    }
    eights_store(sums, eights, to);
}

#endif
