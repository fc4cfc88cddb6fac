#ifndef FOVEA_MODEL_LATENT_DEVICE_H
#define FOVEA_MODEL_LATENT_DEVICE_H

/* LATENT DIRECTIONS WHERE A BACKEND READS THEM: those that attention and products read are copied once
 * to the backend's device, for all requests; a backend of the host reads the checkpoint's. What errors are
 * measured with (fv_latent_measure) is computed here, once: 3 W R^2 multiply-adds a layer, and 4 W R + 16 R^2
 * bytes, with weights 8 W R. The thread that owns the backend. */
#include "kernels/ops.h"
#include "model/latent/latent.h"

typedef struct fv_latent_on_device {
    const fv_latent_layer *layer; /* [n_layer] as kernels and stores are given them */
    /* private */
    fv_latent_layer *layers;
    float *passed; /* [n_layer, 2, R, R] */
    fv_buf buf;
} fv_latent_on_device; /* {0} may be closed */

/* Copies the directions to the device of `be`; `l` must outlive *out. */
fv_status fv_latent_send(const fv_latent *l, fv_backend *be, fv_latent_on_device *out);

/* Call it before the backend is closed, and after every KV store that was given `layer` is closed. */
void fv_latent_on_device_close(fv_latent_on_device *t);

#endif
