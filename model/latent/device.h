#ifndef FOVEA_MODEL_LATENT_DEVICE_H
#define FOVEA_MODEL_LATENT_DEVICE_H

/* LATENT DIRECTIONS ON A BACKEND'S DEVICE: copied once for all requests; a backend on the host
 * reads the checkpoint's directions. The matrices that measure errors (fv_latent_measure) are
 * computed here, once: 3 W R^2 multiply-adds per layer, and 4 W R + 16 R^2 bytes, with weights 8 W
 * R. Runs on the thread that owns the backend. */
#include "kernels/ops.h"
#include "model/latent/latent.h"

typedef struct fv_latent_on_device {
    const fv_latent_layer *layer; /* [n_layer] for kernels and stores */
    /* private */
    fv_latent_layer *layers;
    float *passed; /* [n_layer, 2, R, R] */
    fv_buf buf;
} fv_latent_on_device; /* {0} may be closed */

/* Copies directions to be's device; `l` must stay open longer than *out. */
fv_status fv_latent_device_open(const fv_latent *l, fv_backend *be, fv_latent_on_device *out);

/* Call it before the backend is closed, and after all stores that use the directions. */
void fv_latent_on_device_close(fv_latent_on_device *t);

#endif
