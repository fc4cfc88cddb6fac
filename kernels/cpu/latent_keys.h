#ifndef FOVEA_KERNELS_CPU_LATENT_KEYS_H
#define FOVEA_KERNELS_CPU_LATENT_KEYS_H

/* Keys of 16 to 64 tokens from the levels of their coefficients (latent.h): integer sums, which are the
 * same in any order, and then mean + scale * sum. */
#include <stddef.h>
#include <stdint.h>

enum { LATENT_QUAD = 4 }; /* directions that are multiplied together */

typedef struct latent_keys {
    const int8_t *k; /* [D, line] a KV head's directions */
    size_t line;
    const float *affine; /* [D, 2] mean and scale */
    const int8_t
        *level; /* [quads, 64, LATENT_QUAD] levels of the tokens, from the first token's on; then
                          * zeros, up to a multiple of 16 quads */
    const int32_t *offset; /* [tokens] -128 times the sum of a token's levels */
    size_t quads;
    int D, tiles; /* of 16 tokens, at most 4 */
    float *keys;  /* [D, 64] */
} latent_keys;

typedef void latent_keys_fn(const latent_keys *a);

latent_keys_fn fv_avx512vnni_latent_keys;
latent_keys_fn fv_amx_latent_keys; /* with open tiles (packed_products.h) */

#endif
