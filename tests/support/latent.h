#ifndef FOVEA_TESTS_SUPPORT_LATENT_H
#define FOVEA_TESTS_SUPPORT_LATENT_H

/* LATENT DIRECTIONS FOR TESTS: each direction is a single number of a key or a value, alternating,
 * so that a request keeps some columns of its rows, and the rest is the mean. For networks of any
 * shape; pairs of layers share coefficients. */
#include "model/latent/latent.h"

enum { LATENT_LAYERS = 2, LATENT_RANK = 24 };

/* Numbers of a file for these layers, KV heads and head dim (free them). */
float *latent_numbers(const fv_latent_info *info);

/* Makes the description of a file, with a fingerprint and types, which may be "". Aborts on
 * failure. */
fv_latent_info latent_info(int32_t n_layer, int32_t n_kv, int32_t d_head, const char *fingerprint,
                           const char *dtype, const char *compute);
fv_latent *latent_open(const fv_latent_info *info);

/* Writes latent.bin, in f32, into a checkpoint's folder. Aborts when it cannot. */
void latent_write(const char *checkpoint);

#endif
