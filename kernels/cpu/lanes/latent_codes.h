#ifndef FOVEA_KERNELS_CPU_LANES_LATENT_CODES_H
#define FOVEA_KERNELS_CPU_LANES_LATENT_CODES_H

/* Codes of latent keys, as kernels/ops.h words them, for a path with 16-lane vectors: an item is 64
 * tokens of some KV heads, whose levels are decoded once for all of them. */
#include "kernels/cpu/lanes/latent.h"
#include "packed/scales.h"

enum { CODED_HEADS = 8 }; /* of an item */

typedef struct latent_coder {
    latent_block block;
    const fv_packed_part *k;
    float *affine; /* [D, 2] of a head: 0 and scale / sigma, which turn sums into w */
    float *w;      /* [D, 64] */
} latent_coder;

static size_t latent_coder_scratch(latent_coder *t, void *scratch) {
    scratch_bump at = {.base = scratch};
    t->block.D = (size_t)t->k->shape.d_head;
    latent_take_block(&at, &t->block, (size_t)t->k->latent->n_dir);
    t->affine = scratch_take(&at, 2 * t->block.D);
    t->w = scratch_take(&at, t->block.D * FV_KV_BLOCK);
    return at.bytes;
}

static int64_t latent_codes_blocks(const fv_packed_part *k) {
    return div_up(k->shape.n, FV_KV_BLOCK);
}

static fv_cpu_plan latent_codes_plan(const void *args) {
    const fv_latent_codes_args *a = ((const fv_cpu_attention *)args)->a;
    latent_coder t = {.k = a->k};
    return (fv_cpu_plan){.n_item = latent_codes_blocks(t.k) * div_up(t.k->shape.n_kv, CODED_HEADS),
                         .grain = 1,
                         .scratch_bytes = latent_coder_scratch(&t, NULL)};
}

/* Writes the codes of n tokens of a tile; w: D lines, FV_KV_BLOCK apart. */
static void latent_code_tile(const latent_coder *t, const float *w, int32_t n, uint8_t *tile) {
    size_t D = t->block.D;
    uint16_t *scale = fv_latent_coded_scale(t->k, tile);
    code_pair s[FV_PACKED_TILE];
    float most[FV_PACKED_TILE] = {0};
    memset(tile, 0, fv_latent_coded_tile(&t->k->shape));
    for (size_t d = 0; d < D; d++)
        for (int i = 0; i < FV_PACKED_TILE; i++) {
            float x = fabsf(w[d * FV_KV_BLOCK + (size_t)i]);
            most[i] = x > most[i] ? x : most[i];
        }
    for (int32_t i = 0; i < n; i++) {
        scale[i] = f16_of_f32(most[i] / 7.5f);
        s[i] = (code_pair){-7.5f * f32_of_f16(scale[i]), f32_of_f16(scale[i])};
    }
    for (size_t d = 0; d < D; d++, w += FV_KV_BLOCK, tile += FV_PACKED_TILE / 2)
        for (int32_t i = 0; i < n; i++)
            put_code((char *)tile, 4, (size_t)i, code_of(w[i], s[i], top_code(4)));
}

/* Writes the codes of KV head g's tokens [j0, j0 + n). */
static void latent_code_head(const latent_coder *t, size_t g, int32_t j0, int32_t n) {
    const fv_latent_layer *l = t->k->latent;
    size_t D = t->block.D, c = g * D, tiles = fv_packed_tiles((size_t)n);
    for (size_t d = 0; d < D; d++) {
        t->affine[2 * d] = 0;
        t->affine[2 * d + 1] =
            l->sigma[c + d] > 0 ? l->affine[2 * (c + d) + 1] / l->sigma[c + d] : 0;
    }
    latent_some_keys(&t->block, c, t->affine, 0, tiles, t->block.latent.n_dir, t->w);
    for (size_t i = 0; i < tiles; i++)
        latent_code_tile(t, t->w + i * FV_PACKED_TILE,
                         min_int(n - (int32_t)i * FV_PACKED_TILE, FV_PACKED_TILE),
                         fv_latent_coded(t->k, g, (size_t)j0 / FV_PACKED_TILE + i));
}

/* Decodes the levels of tokens [j0, j0 + n). */
static void latent_code_levels(const latent_coder *t, int32_t j0, int32_t n) {
    const latent_block *b = &t->block;
    size_t tiles = fv_packed_tiles((size_t)n);
    latent_take_block_levels(b, (size_t)j0 / FV_PACKED_TILE, tiles, b->latent.n_dir);
    if (b->latent.exact >= j0 && b->latent.exact < j0 + n)
        latent_clear_levels(b, (size_t)(b->latent.exact - j0));
    latent_lay(b, tiles);
}

static void latent_codes(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_attention *c = args;
    latent_coder t = {.k = ((const fv_latent_codes_args *)c->a)->k,
                      .block.by_quads = c->isa->latent_keys};
    int64_t blocks = latent_codes_blocks(t.k);
    int32_t n_kv = t.k->shape.n_kv;
    latent_coder_scratch(&t, scratch);
    latent_view_open(&t.block.latent, t.k);
    for (int64_t i = begin; i < end; i++) {
        int32_t j0 = (int32_t)(i % blocks) * FV_KV_BLOCK, g0 = (int32_t)(i / blocks) * CODED_HEADS;
        int32_t n = min_int(FV_KV_BLOCK, t.k->shape.n - j0);
        latent_code_levels(&t, j0, n);
        for (int32_t g = g0; g < min_int(g0 + CODED_HEADS, n_kv); g++)
            latent_code_head(&t, (size_t)g, j0, n);
    }
}

#endif
