#ifndef FOVEA_KERNELS_CPU_LANES_ATTN_LATENT_TOKENS_H
#define FOVEA_KERNELS_CPU_LANES_ATTN_LATENT_TOKENS_H

/* Decodes a softmax block for attention on coefficients (lanes/attn_latent.h): its tokens' levels and
 * coefficients, and a KV head's keys, rebuilt from levels or read as codes. */
#include <string.h>

#include "kernels/cpu/lanes/attn_latent_item.h"

/* ---- coefficients ----------------------------------------------------------------------- */

/* Column of the exact token in the block from j0 on, or -1. */
static int32_t latent_exact_at(const latent_item *t, int32_t j0) {
    int32_t at = t->block.latent.exact - j0;
    return t->block.latent.exact >= 0 && at >= 0 && at < FV_KV_BLOCK ? at : -1;
}

static bool latent_low(const latent_item *t, int32_t j) {
    return t->seq->rows->group && t->seq->rows->group[j] &&
           !latent_is_exact(&t->block.latent, (size_t)j);
}

static f32x16 f32x16_of_levels(const int8_t *p) {
#ifdef __AVX512F__
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
#else
    __m128i x = _mm_loadu_si128((const void *)p);
    return (f32x16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
#endif
}

/* Writes z of a tile's first n directions, from the levels at the same column `at`. */
static void latent_take_tile(const latent_item *t, size_t tile, size_t at, size_t n) {
    const latent_view *v = &t->block.latent;
    const int8_t *level = t->block.level + at;
    float *z = t->z + FV_KV_BLOCK + at;
    for (size_t r = 0; r < n; r++, level += FV_KV_BLOCK, z += FV_KV_BLOCK)
        f32x16_store(z, f32x16_mul(f32x16_of_levels(level), f32x16_all(latent_unit(v, r))));
    for (size_t r = n; r < v->n_dir; r++, z += FV_KV_BLOCK)
        memset(z, 0, FV_PACKED_TILE * sizeof *z);
    const uint16_t *p = latent_own_planes(v, tile);
    for (size_t i = 0; i < v->n_own; i++, p += FV_LATENT_BITS, z += FV_KV_BLOCK) {
        uint8_t code[16];
        _mm_storeu_si128((void *)code, latent_plane_codes(p, FV_LATENT_BITS));
        for (int k = 0; k < FV_PACKED_TILE; k++) z[k] = (float)((int32_t)code[k] - 128);
    }
    if (v->n > v->n_dir + v->n_own) memset(z, 0, FV_PACKED_TILE * sizeof *z);
}

/* Clears the exact token's levels and coefficients except the last, which is 1. */
static void latent_take_exact(const latent_item *t, size_t at) {
    latent_clear_levels(&t->block, at);
    for (size_t r = 0; r <= t->block.latent.n; r++)
        t->z[r * FV_KV_BLOCK + at] = r == t->block.latent.n ? 1.0f : 0.0f;
}

/* Clears levels and own coefficients of group 1 beyond the rank at which keys are read. */
static void latent_lower(const latent_item *t, int32_t j0) {
    size_t low = t->low[0], n_dir = t->block.latent.n_dir;
    for (int32_t i = 0; low < t->block.latent.n && i < t->n_list[0]; i++) {
        int32_t at = t->list[0][i] - j0;
        if (!latent_low(t, j0 + at)) continue;
        for (size_t r = low; r < n_dir; r++) t->block.level[r * FV_KV_BLOCK + (size_t)at] = 0;
        for (size_t r = low > n_dir ? low : n_dir; r < t->block.latent.n; r++)
            t->own_z[(r - n_dir) * FV_KV_BLOCK + (size_t)at] = 0.0f;
    }
}

/* Sets need[i] to the number of directions that keys of tile i after row j0 need. */
static void latent_needs(const latent_item *t, int32_t j0, size_t tiles, size_t *need) {
    size_t low = t->low[0] < t->block.latent.n_dir ? t->low[0] : t->block.latent.n_dir;
    for (size_t i = 0; i < tiles; i++) need[i] = low;
    for (int32_t i = 0; i < t->n_list[1]; i++)
        need[(size_t)(t->list[1][i] - j0) / FV_PACKED_TILE] = t->block.latent.n_dir;
}

static void latent_decode(const latent_item *t, int32_t j0, size_t tiles, const size_t *need) {
    size_t least = t->low[1], own = t->block.latent.n - t->block.latent.n_dir;
    int32_t exact = latent_exact_at(t, j0);
    bool alike = true;
    for (size_t i = 1; i < tiles; i++) alike = alike && need[i] == need[0];
    for (size_t i = 0; i < FV_KV_BLOCK; i++) t->z[i] = 1.0f;
    for (size_t i = 0, tile = (size_t)j0 / FV_PACKED_TILE, n; i < tiles; i++, tile++) {
        n = need[i] > least ? need[i] : least;
        n = n < t->block.latent.n_dir ? n : t->block.latent.n_dir;
        if (!alike) latent_take_levels(&t->block, tile, i * FV_PACKED_TILE, n);
        if (alike && i == 0) latent_take_block_levels(&t->block, tile, tiles, n);
        latent_take_tile(t, tile, i * FV_PACKED_TILE, n);
    }
    if (exact >= 0) latent_take_exact(t, (size_t)exact);
    memcpy(t->own_z, t->z + (1 + t->block.latent.n_dir) * FV_KV_BLOCK,
           own * FV_KV_BLOCK * sizeof *t->own_z);
    latent_lower(t, j0);
    if (!t->coded) latent_lay(&t->block, tiles);
}

/* ---- keys ------------------------------------------------------------------------------- */

/* Rebuilds the keys of KV head g0 + h from levels. */
static void latent_rebuilt_keys(const latent_item *t, int32_t h, size_t tiles, const size_t *need) {
    size_t c = (size_t)(t->g0 + h) * t->D;
    for (size_t i = 0, same; i < tiles; i += same) {
        for (same = 1; i + same < tiles && need[i + same] == need[i];) same++;
        latent_some_keys(&t->block, c, t->block.latent.l->affine + 2 * c, i * FV_PACKED_TILE, same,
                         need[i], t->keys);
    }
}

/* Decodes the keys of KV head g0 + h from codes. */
static void latent_coded_keys(const latent_item *t, int32_t h, int32_t j0, size_t tiles) {
    const fv_latent_layer *l = t->block.latent.l;
    size_t g = (size_t)(t->g0 + h), c = g * t->D, line = FV_PACKED_TILE / 2;
    for (size_t i = 0; i < tiles; i++) {
        const uint8_t *at = fv_latent_coded(t->seq->k, g, (size_t)j0 / FV_PACKED_TILE + i);
        f32x16 s = f32x16_widen(fv_latent_coded_scale(t->seq->k, at), FV_F16);
        f32x16 lo = f32x16_mul(f32x16_all(-7.5f), s);
        float *to = t->keys + i * FV_PACKED_TILE;
        for (size_t d = 0; d < t->D; d++, at += line, to += FV_KV_BLOCK) {
            f32x16 w = f32x16_fma(s, f32x16_of_codes(at, 4), lo);
            f32x16_store(
                to, f32x16_fma(f32x16_all(l->sigma[c + d]), w, f32x16_all(l->affine[2 * (c + d)])));
        }
    }
}

/* Unpacks the codes of KV head g0 + h of the block from j0 on to words. */
static void latent_coded_words(const latent_item *t, int32_t h, int32_t j0, size_t tiles) {
    const fv_latent_layer *l = t->block.latent.l;
    const fv_packed_rows *rows = t->seq->rows;
    size_t g = (size_t)(t->g0 + h), c = g * t->D, angles = t->D / 2 * FV_PACKED_TILE;
    uint32_t *to = (uint32_t *)t->keys;
    int32_t exact = latent_exact_at(t, j0);
    for (size_t i = 0, tile = (size_t)j0 / FV_PACKED_TILE; i < tiles; i++, tile++) {
        const uint8_t *at = fv_latent_coded(t->seq->k, g, tile);
        bool in = exact >= 0 && (size_t)exact / FV_PACKED_TILE == i;
        t->words->coded(&(coded_tile){.codes = at,
                                      .scale = fv_latent_coded_scale(t->seq->k, at),
                                      .sigma = l->sigma + c,
                                      .affine = l->affine + 2 * c,
                                      .cos = rows->cos ? rows->cos + tile * angles : NULL,
                                      .sin = rows->cos ? rows->sin + tile * angles : NULL,
                                      .own = t->own[0] + (size_t)h * t->D * OWN_LINE,
                                      .own_z = t->own_z + i * FV_PACKED_TILE,
                                      .n_own = t->block.latent.n - t->block.latent.n_dir,
                                      .ld_own = OWN_LINE,
                                      .without = in ? 1u << exact % FV_PACKED_TILE : 0,
                                      .D = t->D},
                        to + i * FV_PACKED_TILE, FV_KV_BLOCK);
    }
}

/* Writes the keys of KV head g0 + h of the block from j0 on as columns. */
static void latent_keys_of(const latent_item *t, int32_t h, int32_t j0, size_t tiles,
                           const size_t *need) {
    size_t own = t->block.latent.n - t->block.latent.n_dir;
    int32_t exact = latent_exact_at(t, j0);
    if (t->coded)
        latent_coded_keys(t, h, j0, tiles);
    else
        latent_rebuilt_keys(t, h, tiles, need);
    for (size_t d = 0; exact >= 0 && d < t->D; d++) t->keys[d * FV_KV_BLOCK + (size_t)exact] = 0.0f;
    if (own)
        chains_all((chains){t->own[0] + (size_t)h * t->D * OWN_LINE, OWN_LINE, t->own_z,
                            FV_KV_BLOCK, own, tiles, GOES_ON, t->keys, FV_KV_BLOCK, NULL},
                   (int64_t)t->D, 0);
    for (size_t i = 0; i < tiles; i++) {
        float *to = t->keys + i * FV_PACKED_TILE;
        lanes_rotate(t->seq->rows, t->D, (size_t)j0 / FV_PACKED_TILE + i, to);
        as_lines(t->products, to, FV_KV_BLOCK, t->D, FV_PACKED_TILE);
    }
}

#endif
