#ifndef FOVEA_MODEL_NET_RECURRENT_INTERNAL_H
#define FOVEA_MODEL_NET_RECURRENT_INTERNAL_H

/* Recurrent layers of the decoder (Gated DeltaNet, arXiv 2412.06464), and the heads of models that have
 * them. For the files of the decoder only.
 *
 *   u = h Wqkv^T;  z = h Wz^T;  a = h Wa^T;  b = h Wb^T
 *   c = silu(conv(u));  o = delta_rule(c, a, b)                     kernels/recurrent.h
 *   x = x + (silu(z) * RMSNorm(o of each value head)) Wout^T
 *
 * HEADS. Where RoPE rotates only R of a head's D dimensions, the file pairs dimension i < R/2 with
 * i + R/2. A head is rearranged in runs of R/2 numbers, so that rotated pairs are i and i + D/2 and
 * the other pairs have frequency 0: RoPE and compressed keys then need no case of their own. Scores
 * are sums over the same products in another order. Where the file pairs adjacent dimensions, a head
 * is rearranged to its even dimensions and then its odd ones, rotated ones first in both. */
#include "model/net/decoder_internal.h"

/* Activations of a recurrent layer, and of a layer whose heads are rearranged. */
typedef struct fv_recurrent_scratch {
    fv_tensor u, c, z, a, b, o;
    fv_tensor raw, raw_k; /* heads as projected */
    fv_tensor gate;       /* [rows, H D] of attention's output */
} fv_recurrent_scratch;

/* Bytes that the next function cuts; 0 for models without recurrent layers and rearranged heads. */
size_t fv_recurrent_scratch_bytes(const fv_text_config *c, fv_dtype act, int32_t rows);
fv_recurrent_scratch fv_recurrent_scratch_cut(fv_decoder *dec, int32_t rows);

/* Whether queries and keys are projected to raw heads first. */
static inline bool fv_heads_arranged(const fv_text_config *c) {
    return c->gated_attention || c->rope.rotary > 0 || c->rope.adjacent;
}

/* y [n, heads D] = the heads of raw [n, heads stride], each `stride` wide, rearranged. */
fv_status fv_heads_arrange(fv_decoder *dec, fv_tensor raw, int32_t stride, fv_tensor y);

/* Rearranges a vector of one head on the host. */
fv_status fv_heads_arrange_host(const fv_text_config *c, float *x);

/* gate [n, H D] = the second halves of raw [n, H 2 D]'s heads. */
fv_status fv_heads_gate(fv_decoder *dec, fv_tensor raw, fv_tensor gate);

/* Numbers that the next function makes for a recurrent layer. */
size_t fv_recurrent_made(const fv_recurrent_config *r);
/* Replaces a layer's convolution by its transpose, and its rates and shifts by F32, at *at. */
void fv_recurrent_weights(const fv_recurrent_config *r, fv_text_layer *w, float **at);

/* Checks that stores have states, and gives them to those without rows. */
fv_status fv_recurrent_begin(const fv_forward_batch *pass, int32_t l0);

/* Computes a recurrent layer's o [rows, Hv Dv], ahead of Wout, from h; updates the states. `i` counts
 * the recurrent layers of layer l; `adapters` are those of the rows. */
fv_status fv_recurrent_mix(fv_decoder *dec, const fv_forward_batch *pass, int32_t l, int32_t i,
                           const fv_adapter_rows *adapters, fv_tensor h,
                           const fv_recurrent_scratch *s, fv_tensor *o);

#endif
