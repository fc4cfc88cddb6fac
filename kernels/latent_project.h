#ifndef FOVEA_KERNELS_LATENT_PROJECT_H
#define FOVEA_KERNELS_LATENT_PROJECT_H

/* Rows on directions that are stored in bands (kernels/latent.h). The thread that owns the backend. */
#include "kernels/latent.h"
#include "kernels/ops.h"

/* y [M, R] = x P, x [M, W] and P [W, R] in bands, on the device: each y is one chain, as of matmul_nn. With
 * P^T in bf16, `rounded`, each is a canonical product in bf16 (kernels/ops.h) instead, as of linear. */
fv_status fv_latent_project(fv_backend *be, const fv_tensor *x, const float *bands,
                            const uint16_t *rounded, fv_tensor y);

#endif
