#ifndef FOVEA_MODEL_NET_VISION_H
#define FOVEA_MODEL_NET_VISION_H

/* THE EYE: pixel values -> CLIP tower -> features -> projector -> rows for the text model.
 *
 *   x = [cls; conv(patches)] + position;  x = LayerNorm(x)
 *   x = x + Wo attention(LayerNorm(x));   x = x + fc2(act(fc1(LayerNorm(x))))      per layer
 *   features = the chosen hidden states side by side, CLS dropped unless kept
 *   rows = fc2(act(fc1(features)))
 * (CLIP, arXiv 2103.00020; LLaVA-1.5, arXiv 2310.03744). Layers behind the last chosen hidden
 * state are not run. One thread owns a tower. */
#include "model/config.h"
#include "model/weights.h"

typedef struct fv_vision fv_vision; /* opaque; borrows backend, config and host weights */

fv_status fv_vision_open(fv_backend *be, const fv_model_config *cfg, const fv_vision_weights *tower,
                         const fv_projector_weights *projector, fv_vision **out);
void fv_vision_close(fv_vision *v); /* NULL is fine */

/* Columns of the features: d_vision x number of feature layers. */
int32_t fv_vision_feature_width(const fv_model_config *cfg);

/* pixels [n, 3, S, S] F32 on the host. On the device: embeds [n * visual tokens, d_text] F32;
 * features [n * visual tokens, feature width] F32 likewise, or absent when nobody asks. */
fv_status fv_vision_encode(fv_vision *v, const float *pixels, int32_t n, fv_tensor features,
                           fv_tensor embeds);

uint64_t fv_vision_layers_run(const fv_vision *v); /* so far; any thread */

#endif
