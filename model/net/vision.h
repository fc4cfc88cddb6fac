#ifndef FOVEA_MODEL_NET_VISION_H
#define FOVEA_MODEL_NET_VISION_H

/* THE VISION TOWER: pixel values -> CLIP tower -> features -> projector -> embeddings for the text
 * model.
 *
 *   x = [cls; conv(patches)] + position;  x = LayerNorm(x)
 *   x = x + Wo attention(LayerNorm(x));   x = x + fc2(act(fc1(LayerNorm(x))))      per layer
 *   features = the selected hidden states side by side, without CLS unless kept
 *   embeddings = fc2(act(fc1(features)))
 * (CLIP, arXiv 2103.00020; LLaVA-1.5, arXiv 2310.03744). Layers after the last selected hidden
 * state are not run; the attention of the first of them can be captured. One thread owns a
 * tower. */
#include "model/net/config.h"
#include "model/net/weights.h"

typedef struct fv_vision fv_vision; /* opaque; borrows backend, config and host weights */

fv_status fv_vision_open(fv_backend *be, const fv_vision_config *cfg,
                         const fv_vision_weights *tower, const fv_projector_weights *projector,
                         fv_vision **out);
void fv_vision_close(fv_vision *v); /* NULL is fine */

/* A layer's attention capture: the query of CLS and the keys of all tokens, heads side by side.
 * softmax(q k^T / sqrt(D)) is the attention of CLS to each token. */
typedef struct fv_vision_capture {
    int32_t layer; /* 0..fv_vision_layers, the last of which is not run but for this */
    float *q;      /* [n, d_vision] on the host */
    float *k;      /* [n, 1 + P, d_vision] likewise, the class row first */
} fv_vision_capture;

/* Where results go; what is not wanted is absent. */
typedef struct fv_vision_out {
    fv_tensor features;               /* [n * visual tokens, feature width] F32 on the device */
    fv_tensor embeds;                 /* [n * visual tokens, d_text] F32 on the device */
    const fv_vision_capture *capture; /* or NULL */
} fv_vision_out;

/* Layers that are run. */
int32_t fv_vision_layers(const fv_vision *v);

/* pixels [n, 3, S, S] F32 on the host. FV_EUNSUPPORTED when the checkpoint has not the layer that
 * the capture wants, because the tower ends before it. */
fv_status fv_vision_encode(fv_vision *v, const float *pixels, int32_t n, const fv_vision_out *out);

/* The projector alone: embeds [rows, d_text] F32 of features [rows, feature width] F32, each row by
 * itself. */
fv_status fv_vision_project(fv_vision *v, fv_tensor features, fv_tensor embeds);

uint64_t fv_vision_layers_run(const fv_vision *v); /* so far; any thread */

#endif
