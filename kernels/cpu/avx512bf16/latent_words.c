/* Unpacks coded keys (latent.h) to words of products in bf16 (avx512bf16/words.h), without a panel of f32 in
 * between. A lane is a token; a column and the one it is rotated with are decoded together. The bits equal
 * those of decoding number by number (plain/latent.h). */
#include "kernels/cpu/avx512bf16/products.h"
#include "kernels/cpu/avx512bf16/words.h"
#include "kernels/ops.h"

enum { LINE = FV_PACKED_TILE / 2, FOUR = 4 };

static ALWAYS_INLINE long long eight_bytes(const uint8_t *at) {
    long long all;
    memcpy(&all, at, sizeof all);
    return all;
}

/* Decodes column d. s (q - 7.5) is exact, and so equals fma(s, q, -7.5 s). */
static ALWAYS_INLINE __m512 column(const coded_tile *t, __m512 scale, size_t d, const bool plain) {
    const __m512 number = _mm512_setr_ps(-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f,
                                         0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f, 7.5f);
    /* a lane's byte, shifted so that its code is in the lower four bits, the only ones a lookup reads */
    const __m512i byte = _mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i half = _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0);
    __m512i codes = _mm512_set1_epi64(eight_bytes(t->codes + d * LINE));
    __m512i at = _mm512_shuffle_epi8(_mm512_srlv_epi64(codes, half), byte);
    __m512 w = _mm512_mul_ps(scale, _mm512_permutexvar_ps(at, number));
    __m512 k = _mm512_fmadd_ps(_mm512_set1_ps(t->sigma[d]), w, _mm512_set1_ps(t->affine[2 * d]));
    if (plain) return k;
    k = _mm512_maskz_mov_ps((__mmask16)~t->without, k);
    for (size_t i = 0; i < t->n_own; i++)
        k = _mm512_fmadd_ps(_mm512_set1_ps(t->own[d * t->ld_own + i]),
                            _mm512_loadu_ps(t->own_z + i * FV_KV_BLOCK), k);
    return k;
}

/* Packs lines k to k + 3 as words; with `normal`, sets bits of *zeros where a number is 0 in bf16. */
static ALWAYS_INLINE void four_lines(const __m512 x[FOUR], const bool normal, __mmask32 *zeros,
                                     uint32_t *to, size_t ld) {
    UNROLL for (int i = 0; i < 2; i++) {
        __m512i words = normal ? normal_line_words(x[i], x[i + 2]) : line_words(x[i], x[i + 2]);
        if (normal) *zeros |= _mm512_testn_epi16_mask(words, words);
        _mm512_store_si512(to + (size_t)i * ld, words);
    }
}

/* Unpacks a tile. `normal` assumes that no number is subnormal; returns false if a number is 0 in bf16, because it may
 * have been a subnormal that rounds up to 2^-126. */
static ALWAYS_INLINE bool tile_words(const coded_tile *t, const bool plain, const bool turns,
                                     const bool normal, uint32_t *to, size_t ld) {
    const size_t half = t->D / 2;
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)t->scale));
    __mmask32 zeros = 0;
    for (size_t d = 0; d < half; d += FOUR, to += 2 * ld) {
        __m512 a[FOUR], b[FOUR];
        UNROLL for (size_t i = 0; i < FOUR; i++) {
            a[i] = column(t, scale, d + i, plain);
            b[i] = column(t, scale, d + i + half, plain);
            if (!turns) continue;
            __m512 cos = _mm512_loadu_ps(t->cos + (d + i) * FV_PACKED_TILE);
            __m512 sin = _mm512_loadu_ps(t->sin + (d + i) * FV_PACKED_TILE);
            __m512 x = _mm512_fmsub_ps(a[i], cos, _mm512_mul_ps(b[i], sin));
            b[i] = _mm512_fmadd_ps(b[i], cos, _mm512_mul_ps(a[i], sin));
            a[i] = x;
        }
        four_lines(a, normal, &zeros, to, ld);
        four_lines(b, normal, &zeros, to + half / 2 * ld, ld);
    }
    return !normal || zeros == 0;
}

static NEVER_INLINE bool turned(const coded_tile *t, uint32_t *to, size_t ld) {
    return tile_words(t, true, true, true, to, ld);
}

static NEVER_INLINE bool turned_with_own(const coded_tile *t, uint32_t *to, size_t ld) {
    return tile_words(t, false, true, true, to, ld);
}

static NEVER_INLINE void any(const coded_tile *t, uint32_t *to, size_t ld) {
    if (t->cos)
        tile_words(t, false, true, false, to, ld);
    else
        tile_words(t, false, false, false, to, ld);
}

void fv_avx512bf16_coded_words(const coded_tile *t, uint32_t *to, size_t ld) {
    bool fast = t->without == 0 && t->cos;
    if (!fast || !(t->n_own ? turned_with_own : turned)(t, to, ld)) any(t, to, ld);
}
