#ifndef FOVEA_KERNELS_CPU_LANES_LATENT_H
#define FOVEA_KERNELS_CPU_LANES_LATENT_H

/* Levels of a block of 64 tokens and the keys rebuilt from them (kernels/ops.h), for a path with
 * 16-lane vectors:
 *
 *     levels   [directions, 64]   int8, a lane a token
 *     quads    [quads, 64, 4]     levels in the layout of latent_keys.h, or in pairs of 16 bits
 *     keys     [D, 64]            of a KV head: integer sums of levels, mean and scale
 */
#include <string.h>

#include "kernels/cpu/lanes/packed.h"
#include "kernels/cpu/latent_keys.h"
#include "kernels/cpu/path.h"
#include "packed/latent_read.h"

typedef struct latent_block {
    latent_view latent;
    size_t D;
    latent_keys_fn *by_quads; /* NULL: keys are computed from pairs */

    /* scratch */
    int8_t *level;   /* [directions, 64] */
    int8_t *quads;   /* levels in quads, or in pairs of 16 bits */
    int16_t *k_wide; /* with pairs: a line of K widened to 16 bits */
    int32_t *offset; /* [64] */
} latent_block;

/* Places the block's arrays in scratch, for layers of n_dir directions. */
static void latent_take_block(scratch_bump *at, latent_block *b, size_t n_dir) {
    size_t rows = (n_dir + 63) / 64 * 64;
    b->level = (int8_t *)scratch_take(at, rows * FV_KV_BLOCK / sizeof(float));
    b->quads = (int8_t *)scratch_take(at, rows * FV_KV_BLOCK / sizeof(int16_t));
    b->k_wide = (int16_t *)scratch_take(at, rows);
    b->offset = (int32_t *)scratch_take(at, FV_KV_BLOCK);
}

/* ---- levels ----------------------------------------------------------------------------- */

/* Gathers 16 codes from a direction's planes. */
static ALWAYS_INLINE __m128i latent_plane_codes(const uint16_t *p, const int bits) {
    const __m128i both = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128i bit = _mm_set1_epi64x((long long)0x8040201008040201);
    __m128i code = _mm_setzero_si128();
    UNROLL for (int b = 0; b < bits; b++) {
        __m128i x = _mm_and_si128(_mm_shuffle_epi8(_mm_set1_epi16((short)p[b]), both), bit);
        x = _mm_and_si128(_mm_cmpeq_epi8(x, bit), _mm_set1_epi8((char)(1 << b)));
        code = _mm_or_si128(code, x);
    }
    return code;
}

/* Looks up the levels of 16 codes in tables of 16: an index outside a table has its highest bit set, which
 * gives 0. */
static ALWAYS_INLINE void latent_levels_of(const latent_view *v, const uint16_t *p, const int bits,
                                           int8_t *to) {
    const int8_t *level =
        latent_levels(v->l, bits); /* with fewer than 4 bits the load reads the next levels too */
    const __m128i high = _mm_set1_epi8(0x70);
    __m128i code = latent_plane_codes(p, bits), out = _mm_setzero_si128();
    for (int i = 0; i < (bits < 4 ? 1 : 1 << (bits - 4)); i++) {
        __m128i table = _mm_loadu_si128((const void *)(level + 16 * i));
        __m128i at = _mm_sub_epi8(code, _mm_set1_epi8((char)(16 * i)));
        out = _mm_or_si128(out, _mm_shuffle_epi8(table, _mm_adds_epu8(at, high)));
    }
    _mm_storeu_si128((void *)to, out);
}

static void latent_decode_line(const latent_view *v, const uint16_t *p, int bits, int8_t *to) {
    switch (bits) {
    case 0: memset(to, 0, FV_PACKED_TILE); break;
    case 1: latent_levels_of(v, p, 1, to); break;
    case 2: latent_levels_of(v, p, 2, to); break;
    case 3: latent_levels_of(v, p, 3, to); break;
    case 4: latent_levels_of(v, p, 4, to); break;
    case 5: latent_levels_of(v, p, 5, to); break;
    case 6: latent_levels_of(v, p, 6, to); break;
    case 7: latent_levels_of(v, p, 7, to); break;
    default: latent_levels_of(v, p, 8, to);
    }
}

/* Decodes the levels of a tile's first n directions at column `at`; 0 for the others. */
static void latent_take_levels(const latent_block *b, size_t tile, size_t at, size_t n) {
    const latent_view *v = &b->latent;
    const uint16_t *p = v->plane + tile * v->planes;
    int8_t *level = b->level + at;
    for (size_t r = 0; r < n; p += v->bits[r++], level += FV_KV_BLOCK)
        latent_decode_line(v, p, v->bits[r], level);
    for (size_t r = n; r < v->n_dir; r++, level += FV_KV_BLOCK) memset(level, 0, FV_PACKED_TILE);
}

#ifdef __AVX512F__
/* Gathers `bits` planes of four tiles as masks: bit 16 i + j is token j of tile i, 0 for tiles from n on. */
static ALWAYS_INLINE void latent_four_planes(const uint16_t *p, size_t planes, size_t n,
                                             const int bits, uint64_t mask[FV_LATENT_BITS]) {
    const __mmask8 some = (__mmask8)((1u << bits) - 1);
    __m512i all = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i++) {
        __m512i x = _mm512_cvtepu16_epi64(_mm_maskz_loadu_epi16(some, p + i * planes));
        all = _mm512_or_si512(all, _mm512_sll_epi64(x, _mm_cvtsi32_si128(16 * (int)i)));
    }
    _mm512_store_si512(mask, all);
}

/* Decodes a direction of four tiles. Codes of up to 4 bits are one table lookup; longer codes take several
 * tables of 16: an index outside a table has its highest bit set, which gives 0. */
static ALWAYS_INLINE void latent_four_levels(const latent_view *v, const uint16_t *p, size_t n,
                                             const int bits, int8_t *to) {
    _Alignas(64) uint64_t mask[FV_LATENT_BITS];
    const int8_t *level = latent_levels(v->l, bits);
    const __m512i high = _mm512_set1_epi8(0x70);
    __m512i code = _mm512_setzero_si512(), out = code;
    latent_four_planes(p, v->planes, n, bits, mask);
    UNROLL for (int b = 0; b < bits; b++) {
        code = _mm512_mask_add_epi8(code, mask[b], code, _mm512_set1_epi8((char)(1 << b)));
    }
    for (int i = 0; i < (bits < 4 ? 1 : 1 << (bits - 4)); i++) {
        __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(level + 16 * i)));
        __m512i at =
            bits <= 4
                ? code
                : _mm512_adds_epu8(_mm512_sub_epi8(code, _mm512_set1_epi8((char)(16 * i))), high);
        out = _mm512_or_si512(out, _mm512_shuffle_epi8(table, at));
    }
    _mm512_storeu_si512(to, out);
}

static void latent_decode_four(const latent_view *v, const uint16_t *p, size_t n, int bits,
                               int8_t *to) {
    switch (bits) {
    case 0: memset(to, 0, FV_KV_BLOCK); break;
    case 1: latent_four_levels(v, p, n, 1, to); break;
    case 2: latent_four_levels(v, p, n, 2, to); break;
    case 3: latent_four_levels(v, p, n, 3, to); break;
    case 4: latent_four_levels(v, p, n, 4, to); break;
    case 5: latent_four_levels(v, p, n, 5, to); break;
    case 6: latent_four_levels(v, p, n, 6, to); break;
    case 7: latent_four_levels(v, p, n, 7, to); break;
    default: latent_four_levels(v, p, n, 8, to);
    }
}
#endif

/* Decodes a block: the first n directions of `tiles` tiles from `tile` on; 0 for the others. */
static void latent_take_block_levels(const latent_block *b, size_t tile, size_t tiles, size_t n) {
#ifdef __AVX512F__
    const latent_view *v = &b->latent;
    const uint16_t *p = v->plane + tile * v->planes;
    int8_t *level = b->level;
    for (size_t r = 0; r < n; p += v->bits[r++], level += FV_KV_BLOCK)
        latent_decode_four(v, p, tiles, v->bits[r], level);
    memset(level, 0, (v->n_dir - n) * FV_KV_BLOCK);
#else
    for (size_t i = 0; i < tiles; i++) latent_take_levels(b, tile + i, i * FV_PACKED_TILE, n);
#endif
}

/* Clears the levels of the token at column `at`. */
static void latent_clear_levels(const latent_block *b, size_t at) {
    for (size_t r = 0; r < b->latent.n_dir; r++) b->level[r * FV_KV_BLOCK + at] = 0;
}

/* Interleaves four directions of 16 tokens. */
static void latent_quad(const int8_t *level, int8_t *to) {
    __m128i a = _mm_loadu_si128((const void *)level);
    __m128i b = _mm_loadu_si128((const void *)(level + FV_KV_BLOCK));
    __m128i c = _mm_loadu_si128((const void *)(level + 2 * FV_KV_BLOCK));
    __m128i d = _mm_loadu_si128((const void *)(level + 3 * FV_KV_BLOCK));
    __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
    _mm_storeu_si128((void *)to, _mm_unpacklo_epi16(ab, cd));
    _mm_storeu_si128((void *)(to + 16), _mm_unpackhi_epi16(ab, cd));
    ab = _mm_unpackhi_epi8(a, b), cd = _mm_unpackhi_epi8(c, d);
    _mm_storeu_si128((void *)(to + 32), _mm_unpacklo_epi16(ab, cd));
    _mm_storeu_si128((void *)(to + 48), _mm_unpackhi_epi16(ab, cd));
}

/* Interleaves two directions of 16 tokens, widened to 16 bits. */
static void latent_pair(const int8_t *level, int16_t *to) {
    __m128i a = _mm_loadu_si128((const void *)level);
    __m128i b = _mm_loadu_si128((const void *)(level + FV_KV_BLOCK));
    _mm256_storeu_si256((void *)to, _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)));
    _mm256_storeu_si256((void *)(to + 16), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)));
}

/* ---- keys ------------------------------------------------------------------------------- */

/* Packs levels in quads or pairs, for the products. */
static void latent_lay(const latent_block *b, size_t tiles) {
    size_t rows = (b->latent.n_dir + 63) / 64 * 64;
    memset(b->level + b->latent.n_dir * FV_KV_BLOCK, 0, (rows - b->latent.n_dir) * FV_KV_BLOCK);
    for (size_t i = 0; i < tiles * FV_PACKED_TILE; i += FV_PACKED_TILE) {
        if (b->by_quads) {
            for (size_t r = 0; r < rows; r += 4)
                latent_quad(b->level + r * FV_KV_BLOCK + i, b->quads + r * FV_KV_BLOCK + 4 * i);
            continue;
        }
        for (size_t r = 0; r < rows; r += 2)
            latent_pair(b->level + r * FV_KV_BLOCK + i,
                        (int16_t *)(void *)b->quads + r * FV_KV_BLOCK + 2 * i);
    }
    if (!b->by_quads) return;
    memset(b->offset, 0, FV_KV_BLOCK * sizeof *b->offset);
    for (size_t r = 0; r < b->latent.n_dir; r++)
        for (size_t j = 0; j < FV_KV_BLOCK; j++) b->offset[j] += b->level[r * FV_KV_BLOCK + j];
    for (size_t j = 0; j < FV_KV_BLOCK; j++) b->offset[j] *= -128;
}

/* Returns a column of sums for 16 tokens, from pairs. */
static ALWAYS_INLINE f32x16 latent_sum(const int16_t *z, const int16_t *k, size_t pairs) {
#ifdef __AVX512F__
    __m512i acc = _mm512_setzero_si512();
#else
    __m256i acc = _mm256_setzero_si256(), more = acc;
#endif
    for (size_t i = 0; i < pairs; i++, z += 2 * FV_KV_BLOCK, k += 2) {
        int32_t two;
        memcpy(&two, k, sizeof two);
#ifdef __AVX512F__
        acc =
            _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_loadu_si512(z), _mm512_set1_epi32(two)));
#else
        __m256i w = _mm256_set1_epi32(two);
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_loadu_si256((const void *)z), w));
        more = _mm256_add_epi32(more,
                                _mm256_madd_epi16(_mm256_loadu_si256((const void *)(z + 16)), w));
#endif
    }
#ifdef __AVX512F__
    return _mm512_cvtepi32_ps(acc);
#else
    return (f32x16){_mm256_cvtepi32_ps(acc), _mm256_cvtepi32_ps(more)};
#endif
}

static void latent_paired_keys(const latent_block *b, const latent_keys *a) {
    const int16_t *z = (const int16_t *)(const void *)a->level;
    size_t n = a->quads * LATENT_QUAD;
    for (int d = 0; d < a->D; d++) {
        const int8_t *k = a->k + (size_t)d * a->line;
        f32x16 mean = f32x16_all(a->affine[2 * d]), scale = f32x16_all(a->affine[2 * d + 1]);
        for (size_t r = 0; r < n; r += 16)
            _mm256_storeu_si256((void *)(b->k_wide + r),
                                _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(k + r))));
        for (int i = 0; i < a->tiles; i++)
            f32x16_store(a->keys + (size_t)d * FV_KV_BLOCK + i * LANES,
                         f32x16_fma(scale, latent_sum(z + 32 * i, b->k_wide, n / 2), mean));
    }
}

/* Computes keys [D, 64] of the head whose first column is c, `tiles` tiles from column `at` on, from n
 * directions; affine [D, 2] is applied to the sums. */
static void latent_some_keys(const latent_block *b, size_t c, const float *affine, size_t at,
                             size_t tiles, size_t n, float *keys) {
    const fv_latent_layer *l = b->latent.l;
    size_t line = fv_latent_line(l->n_dir);
    latent_keys a = {.k = l->key + c * line,
                     .line = line,
                     .affine = affine,
                     .level = b->quads + at * (b->by_quads ? LATENT_QUAD : 2 * sizeof(int16_t)),
                     .offset = b->offset + at,
                     .quads = (n + 3) / LATENT_QUAD,
                     .D = (int)b->D,
                     .tiles = (int)tiles,
                     .keys = keys + at};
    if (b->by_quads)
        b->by_quads(&a);
    else
        latent_paired_keys(b, &a);
}

#endif
