#ifndef FOVEA_KERNELS_LATENT_PROJECT_H
#define FOVEA_KERNELS_LATENT_PROJECT_H

/* Rows on directions that are stored in bands (kernels/latent.h). The thread that owns the backend. */
#include "kernels/latent.h"
#include "kernels/ops.h"

/* y [M, R] = x P, x [M, W] and P [W, R] in bands, on the device: each y is one chain, as of matmul_nn. */
fv_status fv_latent_project(fv_backend *be, const fv_tensor *x, const float *encode, fv_tensor y);

#endif
