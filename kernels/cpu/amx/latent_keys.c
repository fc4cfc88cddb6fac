/* Keys with TDPBSSD (amx/tiles.h); attention has opened the tiles. Operand A is 16 columns of K in place, operand B
 * 16 quads of 16 tokens' levels, with zeros after the last. Columns that do not fill a tile are computed with
 * VNNI. */
#include "kernels/cpu/latent_keys.h"

#include "kernels/cpu/amx/tiles.h"

enum { QUADS = 16, TOKENS = 64, LINE = TOKENS * LATENT_QUAD };

/* Sums for 16 columns of the keys of 64 tokens. Not inlined: GCC does not know that tile loads read memory. */
static NEVER_INLINE void four_tiles(const int8_t *k, size_t line, const int8_t *level, size_t quads,
                                    int32_t *sums) {
    sums_zero();
    for (size_t q = 0; q < quads; q += QUADS, k += QUADS * LATENT_QUAD, level += QUADS * LINE) {
        _tile_loadd(4, k, line);
        _tile_loadd(6, level, LINE);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, level + 64, LINE);
        _tile_dpbssd(1, 4, 7);
        _tile_loadd(6, level + 128, LINE);
        _tile_dpbssd(2, 4, 6);
        _tile_loadd(7, level + 192, LINE);
        _tile_dpbssd(3, 4, 7);
    }
    sums_store(sums, TILE_ROWS);
}

static NEVER_INLINE void one_tile(const int8_t *k, size_t line, const int8_t *level, size_t quads,
                                  int32_t *sums) {
    _tile_zero(0);
    for (size_t q = 0; q < quads; q += QUADS, k += QUADS * LATENT_QUAD, level += QUADS * LINE) {
        _tile_loadd(4, k, line);
        _tile_loadd(6, level, LINE);
        _tile_dpbssd(0, 4, 6);
    }
    _tile_stored(0, sums, 64);
}

/* Turns sums [16 columns, 16 tokens] of a tile into keys. */
static void finish(const float *affine, const int32_t *sums, float *keys) {
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
        __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + i * 16));
        _mm512_storeu_ps(
            keys + (size_t)i * TOKENS,
            _mm512_fmadd_ps(_mm512_set1_ps(affine[2 * i + 1]), sum, _mm512_set1_ps(affine[2 * i])));
    }
}

void fv_amx_latent_keys(const latent_keys *a) {
    _Alignas(64) int32_t sums[4 * TILE_ROWS * 16];
    latent_keys rest = *a;
    int d = 0;
    for (; d + TILE_ROWS <= a->D; d += TILE_ROWS) {
        const int8_t *k = a->k + (size_t)d * a->line;
        float *keys = a->keys + (size_t)d * TOKENS;
        if (a->tiles == 4)
            four_tiles(k, a->line, a->level, a->quads, sums);
        else
            for (int t = 0; t < a->tiles; t++)
                one_tile(k, a->line, a->level + t * 64, a->quads, sums + t * TILE_ROWS * 16);
        for (int t = 0; t < a->tiles; t++)
            finish(a->affine + 2 * d, sums + t * TILE_ROWS * 16, keys + t * 16);
    }
    rest.k += (size_t)d * a->line;
    rest.affine += 2 * d;
    rest.keys += (size_t)d * TOKENS;
    rest.D -= d;
    if (rest.D > 0) fv_avx512vnni_latent_keys(&rest);
}
