#ifndef FOVEA_TESTS_OPS_LATENT_CASE_H
#define FOVEA_TESTS_OPS_LATENT_CASE_H

/* Random directions of a layer, with any order of bits that begins with the first. */
#include "packed/latent.h"
#include "tests/ops/ops_test.h"

typedef struct latent_basis {
    fv_latent_layer l;
    float *deviation, *affine, *sigma, *value, *encode[2], *decode[2], *mean[2], *offset;
    int8_t *level, *key;
    uint16_t *order;
} latent_basis;

static inline float *latent_random(size_t n, float scale) {
    float *x = room(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_normal() * scale;
    return x;
}

/* Levels of b bits between -4 and 4 deviations, evenly. */
static inline int8_t *latent_even_levels(void) {
    int8_t *level = room(FV_LATENT_LEVELS), *at = level;
    for (int b = 1; b <= FV_LATENT_BITS; b++)
        for (int i = 0; i < 1 << b; i++)
            *at++ = (int8_t)lrintf(-127 + 254 * ((float)i + 0.5f) / (float)(1 << b));
    return level;
}

/* Makes the tables that attention reads from mean and decode. */
static inline void latent_lay(latent_basis *b, int n_kv, int D) {
    size_t R = (size_t)b->l.n_dir, W = (size_t)(n_kv * D), line = R + 1;
    fv_latent_lay_keys(b->deviation, b->mean[0], b->decode[0], b->l.n_dir, W, b->key, b->affine,
                       b->sigma);
    for (size_t c = 0; c < W; c++)
        for (size_t r = 0; r <= R; r++) {
            size_t g = c / (size_t)D, d = c % (size_t)D;
            b->value[(g * line + r) * (size_t)D + d] =
                r ? b->decode[1][(r - 1) * W + c] : b->mean[1][c];
        }
}

static inline latent_basis *latent_basis_new(int n_kv, int D, int R) {
    static const float error[] = {1, .36f, .12f, .035f, .01f, .0025f, .0006f, .00016f, .00004f};
    latent_basis *b = room(sizeof *b);
    size_t W = (size_t)(n_kv * D), n = W * (size_t)(R + 1) + FV_PACKED_TILE;
    b->deviation = room((size_t)R * 4);
    for (int r = 0; r < R; r++) b->deviation[r] = 2 * powf(0.9f, (float)r);
    b->level = latent_even_levels();
    b->order = room((size_t)R * FV_LATENT_BITS * 2);
    fv_latent_order(b->deviation, R, error, b->order);
    b->key = room(W * fv_latent_line(R));
    b->affine = room(2 * W * sizeof *b->affine);
    b->sigma = room(2 * W * sizeof *b->sigma);
    b->value = latent_random(n, 0);
    b->offset = latent_random((size_t)R, 0);
    for (int k = 0; k < 2; k++) {
        b->encode[k] = latent_random(W * (size_t)R, 1 / sqrtf((float)W));
        b->decode[k] = latent_random(W * (size_t)R, 1 / sqrtf((float)R));
        b->mean[k] = latent_random(W, 0.5f);
    }
    b->l = (fv_latent_layer){.n_dir = R,
                             .deviation = b->deviation,
                             .order = b->order,
                             .level = b->level,
                             .key = b->key,
                             .affine = b->affine,
                             .sigma = b->sigma,
                             .value = b->value,
                             .encode = {b->encode[0], b->encode[1]},
                             .decode = {b->decode[0], b->decode[1]},
                             .mean = {b->mean[0], b->mean[1]},
                             .offset = b->offset};
    latent_lay(b, n_kv, D);
    return b;
}

static inline void latent_basis_free(latent_basis *b) {
    void *all[] = {b->deviation, b->level,     b->key,       b->affine,    b->value,
                   b->encode[0], b->encode[1], b->decode[0], b->decode[1], b->mean[0],
                   b->mean[1],   b->offset,    b->order,     b->sigma};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(b);
}

#endif
