#ifndef FOVEA_MODEL_NET_VISION_H
#define FOVEA_MODEL_NET_VISION_H

/* THE VISION TOWER: pixel values of tiles -> tower -> features -> connector -> token embeddings,
 * assembled to images as a layout says.
 *
 *   x = [cls; conv(patches) + b] + position;  x = LayerNorm(x)
 *   x = x + s1 * Wo attention(norm(x));   x = x + s2 * fc2(act(fc1(norm(x))))      per layer
 *   x = LayerNorm(x)
 *   features   = the selected hidden states side by side, without CLS unless kept; with merge r, those
 *                of r x r patches side by side in raster order (pixel unshuffle)
 *   embeddings = fc2(act(fc1(LayerNorm(features)))), or fc1(features)
 *
 * The config says which of these parts a tower has: CLIP (arXiv 2103.00020) has a class token and
 * the first LayerNorm, SigLIP (arXiv 2303.15343) a bias b, Idefics3 (arXiv 2408.12637) the last
 * LayerNorm and merging, InternViT (arXiv 2312.14238) the factors s1 and s2 and, where it is large,
 * RMSNorm of queries and keys. The connectors are LLaVA-1.5's (arXiv 2310.03744), Idefics3's and
 * InternVL's (the only one with the LayerNorm), and MobileVLM V2's (arXiv 2402.03766), for r x r
 * patches f of a token:
 *
 *   z = fc2(mean of act(fc1(f)));   embeddings = depthwise 3 x 3 convolution(z) + z
 *
 * With bucketed positions, patch i of n on a side has the row of the position table that
 * transformers computes in f32 from the coordinate i / n: the number of boundaries k / n at or
 * below it, which is i or, through rounding, i - 1 (Idefics2VisionEmbeddings).
 *
 * Layers after the last selected hidden state are not run. Attention can be captured in any layer
 * that is run and in the one after. A tile gives the same bits alone and among others. One thread
 * owns a tower. */
#include "layout/layout.h"
#include "model/net/config.h"
#include "model/net/weights.h"

typedef struct fv_vision fv_vision; /* opaque; borrows backend, config and host weights */

fv_status fv_vision_open(fv_backend *be, const fv_vision_config *cfg,
                         const fv_vision_weights *tower, const fv_projector_weights *projector,
                         fv_vision **out);
void fv_vision_close(fv_vision *v); /* NULL is fine */

/* Sets a function that is called after each layer from now on. It may use the backend for anything
 * except this tower; the encoded bits do not change. NULL: no call. */
void fv_vision_between(fv_vision *v, void (*between)(void *user), void *user);

/* Attention capture of one layer, for a tower with a class token: the query of CLS and the keys of
 * all tokens, heads side by side. softmax(q k^T / sqrt(D)) is the attention of CLS to each
 * token. */
typedef struct fv_vision_capture {
    int32_t layer; /* 0..fv_vision_layers; the last of these runs only for this */
    float *q;      /* [n, d_vision] on the host */
    float *k;      /* [n, 1 + P, d_vision] on the host, the class row first */
} fv_vision_capture;

enum { FV_VISION_CAPTURES_MAX = 2 };

/* Results; those that are not wanted are absent. */
typedef struct fv_vision_out {
    fv_tensor features; /* [n * visual tokens, feature width] F32 on the device */
    fv_tensor embeds;   /* [n * visual tokens, fv_vision_embed_width] F32 on the device */
    int32_t n_capture;
    const fv_vision_capture *capture; /* [n_capture] at most FV_VISION_CAPTURES_MAX */
} fv_vision_out;

/* Number of layers that are run. */
int32_t fv_vision_layers(const fv_vision *v);

/* Encodes n tiles, pixels [n, 3, S, S] F32 on the host. FV_EUNSUPPORTED if the checkpoint lacks the
 * captured layer, because its tower ends before it, or the class token. */
fv_status fv_vision_encode(fv_vision *v, const float *pixels, int32_t n, const fv_vision_out *out);

/* Encodes tiles of `size`, pixels [n, frames, 3, h, w]. Sizes are whole tokens, and the tower's own
 * size unless any_size is set. A tower whose patches span two frames sees a single frame twice. */
fv_status fv_vision_encode_sized(fv_vision *v, fv_layout_size size, int32_t frames,
                                 const float *pixels, int32_t n, const fv_vision_out *out);

/* Runs the connector alone: features [rows, feature width] F32 -> embeds [rows, d_text] F32, each
 * row by itself; MobileVLM V2's needs whole tiles. */
fv_status fv_vision_project(fv_vision *v, fv_tensor features, fv_tensor embeds);

/* Assembles an image's tokens, rows [l->n_visual, width] F32, from the embeddings of its tiles,
 * tiles [l->n_tile * visual tokens, width] F32, both on the device. FV_EINVAL if the layout is for
 * other tiles, or has newlines that the checkpoint lacks. */
fv_status fv_vision_assemble(fv_vision *v, const fv_layout *l, fv_tensor tiles, fv_tensor rows);

uint64_t fv_vision_layers_run(const fv_vision *v); /* number so far; any thread */

#endif
