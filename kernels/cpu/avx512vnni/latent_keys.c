/* Keys with VPDPBUSD. Its first operand is unsigned, so it gets K + 128, and sums begin at -128 times the
 * sum of a token's levels. A lane is a token. */
#include "kernels/cpu/latent_keys.h"

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/inline.h"

enum { COLUMNS = 6, TILES = 4, TILE_BYTES = 16 * LATENT_QUAD };

/* Computes nd columns of keys from d on, of nt tiles; both are constants after inlining. */
static ALWAYS_INLINE void tile(const latent_keys *a, int d, const int nd, const int nt) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    const int8_t *k = a->k + (size_t)d * a->line, *level = a->level;
    __m512i acc[COLUMNS * TILES];
    UNROLL for (int i = 0; i < nd * nt; i++) {
        acc[i] = _mm512_loadu_si512(a->offset + 16 * (i % nt));
    }
    for (size_t q = 0; q < a->quads; q++, k += LATENT_QUAD, level += 4 * TILE_BYTES) {
        __m512i z[TILES];
        UNROLL for (int j = 0; j < nt; j++) z[j] = _mm512_loadu_si512(level + j * TILE_BYTES);
        UNROLL for (int i = 0; i < nd; i++) {
            int32_t four;
            memcpy(&four, k + (size_t)i * a->line, sizeof four);
            __m512i w = _mm512_xor_si512(_mm512_set1_epi32(four), flip);
            UNROLL for (int j = 0; j < nt; j++) {
                acc[i * nt + j] = _mm512_dpbusd_epi32(acc[i * nt + j], w, z[j]);
            }
        }
    }
    UNROLL for (int i = 0; i < nd * nt; i++) {
        const float *affine = a->affine + 2 * (d + i / nt);
        __m512 sum = _mm512_cvtepi32_ps(acc[i]);
        _mm512_storeu_ps(
            a->keys + (size_t)(d + i / nt) * 64 + 16 * (i % nt),
            _mm512_fmadd_ps(_mm512_set1_ps(affine[1]), sum, _mm512_set1_ps(affine[0])));
    }
}

static NEVER_INLINE void six_by_four(const latent_keys *a, int d) { tile(a, d, 6, 4); }
static NEVER_INLINE void six_by_one(const latent_keys *a, int d) { tile(a, d, 6, 1); }
static NEVER_INLINE void one_by_four(const latent_keys *a, int d) { tile(a, d, 1, 4); }
static NEVER_INLINE void one_by_one(const latent_keys *a, int d) { tile(a, d, 1, 1); }

void fv_avx512vnni_latent_keys(const latent_keys *a) {
    latent_keys one = *a;
    int d = 0;
    if (a->tiles == TILES) {
        for (; d + COLUMNS <= a->D; d += COLUMNS) six_by_four(a, d);
        for (; d < a->D; d++) one_by_four(a, d);
        return;
    }
    for (int t = 0; t < a->tiles; t++, one.level += TILE_BYTES, one.offset += 16, one.keys += 16) {
        for (d = 0; d + COLUMNS <= a->D; d += COLUMNS) six_by_one(&one, d);
        for (; d < a->D; d++) one_by_one(&one, d);
    }
}
