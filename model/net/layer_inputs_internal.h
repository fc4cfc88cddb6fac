#ifndef FOVEA_MODEL_NET_LAYER_INPUTS_INTERNAL_H
#define FOVEA_MODEL_NET_LAYER_INPUTS_INTERNAL_H

/* PER-LAYER EMBEDDINGS (Gemma 4 E2B and E4B): each layer l has an embedding of p numbers of its own for every
 * token, and adds it to its output ahead of the layer's factor. With x0 the input of the first layer and id the
 * token, the padding token in place of an image's:
 *
 *     e = 2^-1/2 (RMSNorm(d^-1/2 x0 Wm_l^T) + p^1/2 table[id, l p .. (l + 1) p))
 *     x = x + RMSNorm((act(x Wg_l^T) * e) Wp_l^T)
 *
 * The table is large, and a token needs one row of it: it stays a mapping of the file. x0 is made again in each
 * pass, so rows that go through some of the layers only carry nothing. For the files of the decoder. */
#include "model/net/decoder_internal.h"

/* Rows of a pass: x0 [rows, d], ids, and scratch [rows, p]. */
typedef struct fv_layer_inputs {
    fv_tensor x0, e, gate;
    int32_t *ids; /* [rows], in dec->host */
} fv_layer_inputs;

/* Makes the factors in *at, and moves it behind them: 3 p numbers. */
fv_status fv_layer_inputs_open(fv_decoder *dec, float **at);

/* Workspace for `rows` rows; 0 bytes and empty tensors in other models. */
size_t fv_layer_inputs_bytes(const fv_text_config *c, int32_t rows);
fv_layer_inputs fv_layer_inputs_cut(fv_decoder *dec, int32_t rows);

/* Fills in x0 and ids of the pass's rows; or of rows row[to->x0.rows] of others. FV_EINVAL for an id outside
 * the vocabulary, FV_ENOMEM. */
fv_status fv_layer_inputs_fill(fv_decoder *dec, const fv_forward_batch *pass, fv_layer_inputs *to);
fv_status fv_layer_inputs_pick(fv_decoder *dec, const fv_layer_inputs *from, const int32_t *row,
                               fv_layer_inputs *to);

/* Adds layer l's term to x; h [rows, d] is overwritten. */
fv_status fv_layer_inputs_add(fv_decoder *dec, const fv_layer_inputs *in, int32_t l,
                              const fv_adapter_rows *adapters, fv_tensor h, fv_tensor x);

#endif
