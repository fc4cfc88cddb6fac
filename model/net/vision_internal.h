#ifndef FOVEA_MODEL_NET_VISION_INTERNAL_H
#define FOVEA_MODEL_NET_VISION_INTERNAL_H

/* Shared by the files of the vision tower only. */
#include <stdatomic.h>

#include "common/arena.h"
#include "model/net/vision.h"
#include "model/net/workspace.h"

struct fv_vision {
    fv_backend *be;
    const fv_vision_config *cfg;
    fv_vision_weights w;
    fv_projector_weights p;
    int32_t n_layer;    /* layers that are run */
    float *grid;        /* [position_side^2, d] the table of positions to interpolate; NULL: none */
    int32_t *position;  /* of each row of a tile, its row of the position table */
    int32_t rows, cols; /* patches of a tile: the config's, or those of the tiles at hand */
    void *merger;       /* the connector's, with columns in the order (y, x, channel) */
    fv_workspace ws;
    fv_arena host;
    atomic_ullong n_layer_run;
};

/* The bucket of coordinate i / n among the boundaries 1/n .. (n - 1)/n, as torch.bucketize has it with
 * right=True. */
int32_t fv_vision_bucket(int32_t n, int32_t i);

#endif
