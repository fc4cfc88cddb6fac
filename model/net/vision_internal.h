#ifndef FOVEA_MODEL_NET_VISION_INTERNAL_H
#define FOVEA_MODEL_NET_VISION_INTERNAL_H

/* Declarations shared by the files of the vision tower only. */
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
    float *grid;        /* [position_side^2, d] table of positions to interpolate; NULL: not
                         * interpolated */
    int32_t *position;  /* row of the position table for each row of a tile */
    int32_t rows, cols; /* patches of a tile: the config's, or those of the current tiles */
    void *merger;   /* the connector's matrix, columns in the order (y, x, channel); with mean_pool
                     * the file's matrix, transposed */
    float *made;    /* values computed for the connector: with mean_pool 1 + w of its norm;
                     * MobileVLM V2's kernel and bias in f32; and `mean` */
    fv_tensor mean; /* [1, d of the averaged rows] 1 / merge^2, with pool_patches times sqrt(d) */
    fv_tensor ones; /* [1, D] with head_norms */
    fv_workspace ws;
    fv_arena host;
    void (*between)(void *user); /* fv_vision_between */
    void *user;
    atomic_ullong n_layer_run;
};

static inline int32_t fv_vision_patches(const fv_vision *v) { /* in a tile */
    return v->rows * v->cols;
}

/* Rows of a tile inside the tower: the class token, if there is one, and patches. */
static inline int32_t fv_vision_rows(const fv_vision *v) {
    return fv_vision_patches(v) + v->cfg->class_token;
}

/* y [+]= x w^T + b; x = act(x) */
fv_status fv_vision_linear(fv_vision *v, fv_tensor x, fv_tensor w, fv_tensor b, fv_tensor y,
                           bool accumulate);
fv_status fv_vision_activate(fv_vision *v, fv_activation act, fv_tensor x);

/* Fills rows [n * patches, d] F32 with the positions of n tiles' patches, interpolated from the
 * table's grid; order[i] is the raster index of a tile's row i. Host memory is from v->host. */
fv_status fv_vision_positions(fv_vision *v, const int32_t *order, int32_t n, fv_tensor rows);

/* ---- Gemma 4 (vision_gemma4.c) ------------------------------------------------------------------ */

/* Unfolds pixels [3, h, w] to rows of patches, order[] says which, columns in the order (y, x,
 * channel). */
void fv_vision_unfold_last(const fv_vision *v, fv_layout_size size, const int32_t *order,
                           const float *pixels, float *out);

/* x [n P, d] = patches [n P, 3 p p] W^T + positions, with norms as the config says. `spare` [n P, d]
 * is overwritten. FV_EINVAL for more patches on a side than the table has positions. */
fv_status fv_vision_embed_axes(fv_vision *v, fv_tensor patches, const int32_t *order,
                               fv_tensor spare, fv_tensor x);

/* Norms and rearranges the heads of queries, keys and values. Tensors of equal shape change places:
 * *q with *o, *k with *h. */
fv_status fv_vision_heads(fv_vision *v, const fv_vision_layer *w, fv_tensor *q, fv_tensor *k,
                          fv_tensor values, fv_tensor *o, fv_tensor *h);

/* y = x W^T, with x clipped into `clipped`, which may be x, and y clipped in place. */
fv_status fv_vision_linear_clipped(fv_vision *v, fv_tensor x, fv_tensor clipped, fv_tensor w,
                                   const fv_vision_clip *clip, fv_tensor y);

/* Makes the factors that files do not have; and the means' bias and factor, in place. */
fv_status fv_vision_open_gemma4(fv_vision *v, fv_projector_weights *p);
fv_status fv_vision_standardize(fv_vision *v, fv_tensor features);

/* Workspace bytes that the connector needs for `rows` rows. */
size_t fv_connector_need(const fv_vision *v, int32_t rows);

/* Runs the connector: features [rows, feature width] -> y's first d_text columns, the text model's
 * input. fv_connect_deepstack runs deepstack's connector i -> the d_text columns from (i + 1)
 * d_text on. */
fv_status fv_connect(fv_vision *v, fv_tensor features, fv_tensor y);
fv_status fv_connect_deepstack(fv_vision *v, int32_t i, fv_tensor features, fv_tensor y);

/* Bucket of the coordinate i / n among the boundaries 1/n .. (n - 1)/n, as in torch.bucketize with
 * right=True. */
int32_t fv_vision_bucket(int32_t n, int32_t i);

#endif
