#ifndef FOVEA_MODEL_NET_LAYER_INTERNAL_H
#define FOVEA_MODEL_NET_LAYER_INTERNAL_H

/* ONE LAYER of a pass, for the decoder's files only: its scratch memory, its projections, its FFN.
 * decoder.c runs layer after layer. */
#include "model/net/decoder_internal.h"
#include "model/net/forward_tables.h"
#include "model/net/layer_inputs_internal.h"
#include "model/net/recurrent_internal.h"

/* Activations of one layer. */
typedef struct fv_layer_scratch {
    fv_tensor h, q, k, v, o, gate, up;
    fv_tensor some_h, some;        /* for a set that is not all rows: states, and queries or keys */
    fv_tensor shared, shared_gate; /* of a shared expert: its output, and a number for each row */
    fv_tensor some_raw;            /* heads of those, before they are rearranged */
    fv_tensor routed;              /* with dense_beside: what the router reads */
    fv_tensor raw_q, raw_k, raw_v; /* heads of a layer, before they are placed (heads_internal.h) */
    fv_layer_inputs inputs;        /* of the rows */
    const fv_adapter_rows *adapters; /* of the rows */
    fv_recurrent_scratch recurrent;
} fv_layer_scratch;

/* Bytes of what is cut from a pass's workspace: for all or the wanted rows, and for sets of `rows` rows that
 * are not all, whose queries are the widest that go through it. */
size_t fv_layer_scratch_bytes(const fv_text_config *c, fv_dtype act, int32_t rows);
size_t fv_layer_subset_bytes(const fv_text_config *c, fv_dtype act, int32_t rows);
fv_layer_scratch fv_layer_scratch_cut(fv_decoder *dec, int32_t rows,
                                      const fv_adapter_rows *adapters);
void fv_layer_subset_cut(fv_decoder *dec, int32_t rows, fv_layer_scratch *s);

/* y = RMSNorm(x), with factors w. */
fv_status fv_layer_norm(fv_decoder *dec, fv_tensor x, fv_tensor w, fv_tensor y);

/* y = x times a row of factors, or y += that. */
fv_status fv_layer_scale_rows(fv_decoder *dec, fv_tensor x, fv_tensor factors, fv_tensor y,
                              bool add);

/* y += h, normed first with post_norms, scaled with residual_scale; h is overwritten. */
fv_status fv_layer_output_add(fv_decoder *dec, fv_tensor h, fv_tensor post_norm, fv_tensor y);

/* The linear layer of `of`, a tensor of layer w. */
typedef struct fv_layer_output {
    const fv_text_layer *w;
    const fv_tensor *of;
    fv_tensor bias, post_norm;
} fv_layer_output;

/* y += x of^T + bias; with post_norms the product is normed first, with residual_scale scaled, in s->h. */
fv_status fv_layer_linear_add(fv_decoder *dec, fv_tensor x, fv_layer_output out,
                              const fv_layer_scratch *s, fv_tensor y);

/* Projects values of all rows, and keys and queries of rows that have their own. Keys and values go to the
 * stores. Queries go to s->q, whose other rows stay as the source layer left them. */
fv_status fv_layer_project(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                           int32_t l, const fv_query_rows *queries, const fv_query_rows *keys,
                           const fv_layer_scratch *s);

/* x += FFN(norm(x)), of layer or recurrent layer w. */
fv_status fv_layer_ffn(fv_decoder *dec, const fv_text_layer *w, const fv_layer_scratch *s,
                       fv_tensor x);

#endif
