#ifndef FOVEA_MODEL_NET_DECODER_H
#define FOVEA_MODEL_NET_DECODER_H

/* THE TEXT MODEL: rows of hidden states through decoder layers, against KV stores.
 *
 * Prefill and decode use the same functions: a pass carries rows of any number of sequences, any
 * number of rows each, through layers [l0, l1). A row sees the entries that its sequence's store
 * holds before the pass, and the rows before it in the pass. The same rows give the same bits
 * whatever else is in the pass and however a prompt is cut into passes (kernels/ops.h).
 *
 *   h = RMSNorm(x);  q, k, v = h Wq^T + bq, ...;  q, k = RMSNorm of each head, in models with qk_norm
 *   RoPE(q, k, rope_pos);  append k, v
 *   x = x + (attention(q) Wo^T + bo)
 *   x = x + (act(h' Wg^T) * (h' Wu^T)) Wd^T,   h' = RMSNorm(x)
 *   in a sparse layer the last term is that of a mixture of experts (experts.h)
 *   with value_norm v = RMSNorm of each head; with layer_scale the layer's output is multiplied
 *   with post_norms, both terms added to x are normed: RMSNorm(attention(q) Wo^T), ...
 *
 * In a model with recurrent layers (config.h) a layer begins with them; attention's output may be
 * multiplied by the sigmoid of a gate, which the queries' projection computes too:
 *
 *   x = x + (silu(z) * RMSNorm(delta_rule(h))) Wout^T;   x = x + FFN(x)      as many times as there are
 *
 * Their states are in the sequences' stores (fv_kv_state): each row that runs through a layer changes
 * them once, and what a store drops later stays in them.
 *
 * A layer whose store borrows keys (fv_kv_borrow) is lazy for that sequence: rows of a segment that
 * borrows use the queries and keys that the same rows had in the source layer, and compute values
 * only. A pass may carry sequences of different source layers.
 *
 * Layers that share keys and values (config.h, n_sharer) follow the last layer in the same call. Only
 * wanted rows run through them.
 *
 * A layer whose store is packed (kv/packed.h) merges attention on its packed tokens with attention
 * on raw rows; such a layer can have no captures and no shares.
 *
 * One thread owns a decoder. */
#include "kv/kv.h"
#include "model/net/config.h"
#include "model/net/weights.h"

typedef struct fv_decoder fv_decoder; /* opaque; borrows backend, config and host weights */

/* FV_EUNSUPPORTED for recurrent layers or per-layer embeddings on another device than the host. */
fv_status fv_decoder_open(fv_backend *be, const fv_text_config *cfg, const fv_text_weights *host,
                          fv_decoder **out);
void fv_decoder_close(fv_decoder *dec); /* NULL is fine */

const fv_text_config *fv_decoder_config(const fv_decoder *dec);
fv_backend *fv_decoder_backend(const fv_decoder *dec);

/* Embeddings of n token ids into y [n, d]. FV_EINVAL for an id outside the vocabulary. */
fv_status fv_decoder_embed(fv_decoder *dec, const int32_t *ids, int32_t n, fv_tensor y);

/* Copies embeddings of image tokens x [n, d] to y, scaled as the model scales them. */
fv_status fv_decoder_embed_images(fv_decoder *dec, fv_tensor x, fv_tensor y);

/* A capture: the attention of a sequence's last tokens to each key in one layer, per query head,
 * summed over those tokens. For a single token, added to zeros, these are its attention
 * probabilities. Captures are computed in addition to the softmax and change no bit of the layer's
 * result. A window of tokens that spans several forward batches gives the bits of one: each batch
 * continues with what `p` holds. */
typedef struct fv_forward_capture {
    int32_t layer;   /* in the network's last layer, captured rows must be wanted rows */
    int32_t n_row;   /* last rows of the sequence in this pass */
    float n;         /* n-softmax: probabilities are exp(s_j) / (n + sum_j exp(s_j)) */
    bool low;        /* count the tokens that give a key less than an even share; no sums */
    bool by_segment; /* separate sums for the rows of each segment */
    int32_t text;    /* column of the first text key; visual keys start at 0; both in the order of
                      * the store */
    int32_t n_key;   /* columns */
    /* [n_row, n_key] weight of each row, key by key; NULL: 1. On the host. */
    const float *weight;
    bool head_max; /* sum the maximum over heads, not each head */
    /* [H unless head_max, FV_N_SEG if by_segment, n_key] on the host, in and out; read it when the
     * backend has synced */
    float *p;
    bool fresh; /* p is not read: the sums start from zero */
    float *o;   /* NULL, or [H D] on the host: attention's output for the last row, ahead of Wo */
} fv_forward_capture;

/* The rows of one sequence in a pass. Before a pass brings visual tokens, every layer must have a
 * visual extent (fv_kv_extent); the pass itself allocates text pages. */
typedef struct fv_forward_seq {
    fv_kv *kv;
    int32_t n_rows;     /* rows of this sequence, after those of the sequence before */
    const int32_t *pos; /* [n_rows] ascending original positions, all after those in kv; or in any
                         * order if `masked_tail` says what each row sees */
    /* [n_rows] positions by which queries and keys are rotated; NULL: those that the store's map
     * has for `pos` (fv_kv_set_rope_map) */
    const fv_rope_pos *rope_pos;
    const uint8_t *seg; /* [n_rows] fv_kv_segment */
    /* Deepstack (arXiv 2406.04334): embeds [visual tokens, (1 + k) d] F32 on the device. Part i is
     * added to a visual token's hidden state after layer i - 1; the token's row is embed_at[pos].
     * embed_at NULL, or embeds no wider than d: nothing is added. k is less than the number of
     * layers. */
    fv_tensor embeds;
    const int32_t *embed_at;
    /* With per-layer embeddings: the id of the text token at position p is ids[p - ids_from]; visual
     * tokens are rows of `embeds`. */
    const int32_t *ids;
    int32_t ids_from;
    int32_t wanted; /* number of last rows whose output of the last layer is wanted */
    int32_t n_capture;
    const fv_forward_capture *capture; /* [n_capture] */
    /* accumulate the attention that compressed tokens receive in this forward batch (expand.h) */
    bool observe;
    float n; /* n-softmax in every layer; 0: the usual softmax */
    /* [n_rows, H D] of the backend's act type, or absent: queries of a block whose layers are
     * spread over calls. Read if layer l0 is lazy, written if layer l1 is. */
    fv_tensor queries;
    /* Per layer NULL, or [n_rows] fv_attn_share: how each row's attention to visual keys is shared;
     * with n = 0 only. NULL: not at all in any layer. */
    const uint8_t *const *share;
    int32_t share_first; /* fv_attn_seq.n_first */
    /* [FV_N_SEG, n_rows] for each token, how many entries at the end of each segment, including
     * those of this forward batch, are masked; NULL: those of later tokens. */
    const int32_t *masked_tail;
} fv_forward_seq;

typedef struct fv_forward_batch {
    fv_tensor x; /* [sum of n_rows, d] residual stream, F32; in and out */
    int32_t n_seq;
    const fv_forward_seq *seq; /* [n_seq] */
    /* Set by a pass that ends with the last layer: the wanted rows of all sequences in order, [sum
     * of wanted, d]; valid until the next call. */
    fv_tensor out;
} fv_forward_batch;

/* Runs pass->x through layers l0 <= l < l1 and appends to every store. In the network's last layer
 * tokens whose output is not wanted stop after their keys and values: after that layer pass->x is
 * undefined and pass->out has the result. A lazy layer and its source layer must be in the same
 * call, unless the sequence has `queries`. On failure the stores are inconsistent: close them. */
fv_status fv_decoder_layers(fv_decoder *dec, fv_forward_batch *pass, int32_t l0, int32_t l1);

/* A WATCHER is called in every layer of every pass when attention is computed and the backend has
 * synced. attn's q, o and lse are those of the rows that continue (in the network's last layer the
 * wanted ones), and the stores hold the pass's rows. Tensors are on the device. A watcher changes
 * no bit of a result. A failure ends the pass. */
typedef fv_status fv_decoder_watcher(void *user, const fv_forward_batch *pass, int32_t layer,
                                     const fv_attn_args *attn);

/* Sets the watcher of all later passes; NULL: none. */
void fv_decoder_watch(fv_decoder *dec, fv_decoder_watcher *watcher, void *user);

/* Number of layers run so far, in passes that succeeded or not: it grows while a pass makes
 * progress. Any thread. */
uint64_t fv_decoder_layers_run(const fv_decoder *dec);

/* logits [n, vocab] on the host, F32, of n rows that left the last layer:
 * RMSNorm(x) Wlm^T, with logits_cap c tanh(that / c). */
fv_status fv_decoder_logits(fv_decoder *dec, fv_tensor x, float *logits);

#endif
