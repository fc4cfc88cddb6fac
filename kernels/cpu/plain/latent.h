#ifndef FOVEA_KERNELS_CPU_PLAIN_LATENT_H
#define FOVEA_KERNELS_CPU_PLAIN_LATENT_H

/* Keys of coefficients, as kernels/ops.h words them, one number at a time. */
#include <math.h>

#include "packed/latent_read.h"

/* Sum over n levels for column c of keys, before its scale. */
static inline float plain_latent_sum(const fv_latent_layer *l, const int8_t *level, size_t n,
                                     size_t c) {
    const int8_t *key = l->key + c * fv_latent_line(l->n_dir);
    int32_t sum = 0;
    for (size_t r = 0; r < n; r++) sum += level[r] * key[r];
    return (float)sum;
}

/* Decodes column d of row j of KV head g from its code. */
static inline float plain_latent_coded(const fv_packed_part *k, size_t g, size_t j, size_t d) {
    const fv_latent_layer *l = k->latent;
    size_t c = g * (size_t)k->shape.d_head + d, at = j % FV_PACKED_TILE;
    const uint8_t *tile = fv_latent_coded(k, g, j / FV_PACKED_TILE);
    float s = f32_of_f16(fv_latent_coded_scale(k, tile)[at]);
    float code = (float)(tile[d * FV_PACKED_TILE / 2 + at / 2] >> at % 2 * 4 & 15);
    return fmaf(l->sigma[c], fmaf(s, code, -7.5f * s), l->affine[2 * c]);
}

#endif
