#ifndef FOVEA_MODEL_NET_WORKSPACE_H
#define FOVEA_MODEL_NET_WORKSPACE_H

/* Memory of the network on its device: copies of weights if it cannot read host memory, and one
 * growing scratch area from which every pass cuts its activations. One thread. */
#include "kernels/ops.h"

typedef struct fv_workspace {
    fv_backend *be;
    fv_buf scratch;
    size_t used;
    fv_buf *owned; /* [n_owned] weights on a device that does not read host memory */
    int32_t n_owned;
    size_t cap_owned;
} fv_workspace; /* {.be = backend} is empty */

void fv_workspace_fini(fv_workspace *ws);

/* Makes `host` usable by the backend; an absent tensor stays absent. */
fv_status fv_workspace_weight(fv_workspace *ws, const fv_tensor *host, fv_tensor *out);

/* Releases all cuts and makes sure that `bytes` can be cut without growing. Growing moves the area:
 * earlier cuts become invalid. */
fv_status fv_workspace_reset(fv_workspace *ws, size_t bytes);

/* Cuts a matrix from the scratch memory, which reset has allocated. */
fv_tensor fv_workspace_cut(fv_workspace *ws, fv_dtype dtype, int32_t rows, int32_t cols);

/* Bytes of such a cut. */
size_t fv_workspace_need(fv_dtype dtype, int32_t rows, int32_t cols);

#endif
