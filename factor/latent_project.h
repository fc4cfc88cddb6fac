#ifndef FOVEA_FACTOR_LATENT_PROJECT_H
#define FOVEA_FACTOR_LATENT_PROJECT_H

/* Projects rows on directions (packed/latent.h). Runs on the thread that owns the backend. */
#include "kernels/ops.h"
#include "packed/latent.h"

/* y [M, R] = x P, x [M, W] on the device. Each y is one chain, as in matmul_nn; with P in bf16 a canonical
 * product in bf16, as in linear (kernels/ops.h). */
fv_status fv_latent_project(fv_backend *be, const fv_tensor *x, const fv_latent_columns *p,
                            fv_tensor y);

#endif
