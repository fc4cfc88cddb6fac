#ifndef FOVEA_MODEL_NET_DECODER_H
#define FOVEA_MODEL_NET_DECODER_H

/* THE TEXT MODEL: rows of hidden states through decoder layers, against KV stores.
 *
 * One door for prefill and decode: a pass carries rows of any number of sequences, any number of
 * rows each, through layers [l0, l1). What a row sees is what its sequence's store holds before
 * the pass and the rows before it in the pass. The same rows give the same bits whatever else
 * is in the pass and however a prompt is cut into passes (kernels/ops.h).
 *
 *   h = RMSNorm(x);  q, k, v = h Wq^T + bq, ...;  q, k = RMSNorm of each head, in models with qk_norm
 *   RoPE(q, k, rope_pos);  append k, v
 *   x = x + (attention(q) Wo^T + bo)
 *   x = x + (act(h' Wg^T) * (h' Wu^T)) Wd^T,   h' = RMSNorm(x)
 *   with post_norms, both of what is added to x are normed: RMSNorm(attention(q) Wo^T), ...
 *
 * A layer whose store borrows keys (fv_kv_borrow) is lazy for that sequence: rows of a segment that
 * borrows use the queries and keys that the same rows had in the source layer, and compute values
 * only. A pass may carry sequences of different source layers.
 *
 * A layer whose store is packed (kv_packed.h) adds what its factors contribute to the attention on
 * raw rows; such a layer can have no captures and no shares.
 *
 * One thread owns a decoder. */
#include "model/net/config.h"
#include "model/net/kv.h"
#include "model/net/weights.h"

typedef struct fv_decoder fv_decoder; /* opaque; borrows backend, config and host weights */

fv_status fv_decoder_open(fv_backend *be, const fv_text_config *cfg, const fv_text_weights *host,
                          fv_decoder **out);
void fv_decoder_close(fv_decoder *dec); /* NULL is fine */

const fv_text_config *fv_decoder_config(const fv_decoder *dec);
fv_backend *fv_decoder_backend(const fv_decoder *dec);

/* Embeddings of n token ids into y [n, d]. FV_EINVAL for an id outside the vocabulary. */
fv_status fv_decoder_embed(fv_decoder *dec, const int32_t *ids, int32_t n, fv_tensor y);

/* A capture: the attention of a sequence's last tokens to each key in one layer, per query head,
 * summed over those tokens. For a single token, added to zeros, these are its attention
 * probabilities. Captures are computed in addition to the softmax and change no bit of the layer's
 * result. A window of tokens that spans several forward batches gives the bits of one: each batch
 * continues with what `p` holds. */
typedef struct fv_forward_capture {
    int32_t layer; /* in the network's last layer the rows must be wanted ones */
    int32_t n_row; /* last rows of the sequence in this pass */
    float n;       /* of n-softmax: probabilities are exp(s_j) / (n + sum_j exp(s_j)) */
    bool low;      /* instead of sums: how many of the tokens give a key less than an even share */
    bool by_segment; /* rows of each segment are summed apart */
    int32_t text;    /* column of the first text key; visual keys start at 0, each in the order of
                      * the store */
    int32_t n_key;   /* columns */
    /* [n_row, n_key] what each row counts for, key by key; NULL: 1. On the host. */
    const float *weight;
    bool head_max; /* the largest of all heads is summed, not each */
    float *p; /* [H unless head_max, FV_N_SEG if by_segment, n_key] on the host, in and out; read it
                * when  the backend has synced */
    float *o; /* NULL, or [H D] on the host: attention's output for the last row, ahead of Wo */
} fv_forward_capture;

/* The rows of one sequence in a pass. In layers that have no visual extent yet, the store
 * must get one (fv_kv_extent) before a pass brings visual tokens; text pages are taken here. */
typedef struct fv_forward_seq {
    fv_kv *kv;
    int32_t n_rows;     /* they follow the rows of the sequence before */
    const int32_t *pos; /* [n_rows] ascending original positions, after all that kv holds; or any
                         * ones, where `masked_tail` says what each row sees */
    /* [n_rows] positions that queries and keys are rotated by; NULL: those of `pos` in the store's
     * map (fv_kv_set_rope_map) */
    const fv_rope_pos *rope_pos;
    const uint8_t *seg; /* [n_rows] fv_kv_segment */
    /* Deepstack (arXiv 2406.04334): embeds [visual tokens, (1 + k) d] F32 on the device, of which part i
     * is added to a visual token's hidden state after layer i - 1; its row is embed_at[pos]. Not wider
     * than d, or NULL: nothing is. k is less than the number of layers. */
    fv_tensor embeds;
    const int32_t *embed_at;
    int32_t wanted; /* how many of its last rows are wanted out of the last layer */
    int32_t n_capture;
    const fv_forward_capture *capture; /* [n_capture] */
    /* accumulate the attention that compressed tokens receive in this forward batch (expand.h) */
    bool observe;
    float n; /* of n-softmax in every layer, 0: the softmax */
    /* [n_rows, H D] of the backend's act type, or absent: queries of a block that is cut by the
     * calls' layers. Read when layer l0 is lazy, written when layer l1 will be. */
    fv_tensor queries;
    /* Per layer NULL, or [n_rows] fv_attn_share: what becomes of each row's attention on visual
     * keys; with n = 0. NULL: nothing in any layer. */
    const uint8_t *const *share;
    int32_t share_first; /* n_first of it */
    /* [FV_N_SEG, n_rows] for each token, how many entries at the end of each segment, including
     * those of this forward batch, are masked; NULL: those of later tokens. */
    const int32_t *masked_tail;
} fv_forward_seq;

typedef struct fv_forward_batch {
    fv_tensor x; /* [sum of n_rows, d] residual stream, F32; in and out */
    int32_t n_seq;
    const fv_forward_seq *seq; /* [n_seq] */
    fv_tensor out; /* set by a pass that ends with the last layer: the wanted rows of all
                             * sequences in order, [sum of wanted, d]; valid until the next call */
} fv_forward_batch;

/* Runs pass->x through layers l0 <= l < l1 and appends to every store. In the network's last layer
 * tokens whose output is not wanted stop after their keys and values: after that layer pass->x is
 * undefined and pass->out has the result. A lazy layer and its source layer must be in the same
 * call, unless the sequence has `queries`. On failure the stores are inconsistent: close them. */
fv_status fv_decoder_layers(fv_decoder *dec, fv_forward_batch *pass, int32_t l0, int32_t l1);

/* A WATCHER is shown every layer of every pass when its attention is computed and the backend has
 * synced: attn's q, o and, for it, lse are those of the rows that go on, the sequence's last ones in the
 * network's last layer, and the stores hold the pass's rows. Tensors are on the device. It changes no bit of a result. A failure ends the pass. */
typedef fv_status fv_decoder_watcher(void *user, const fv_forward_batch *pass, int32_t layer,
                                     const fv_attn_args *attn);

/* From now on; NULL: none. */
void fv_decoder_watch(fv_decoder *dec, fv_decoder_watcher *watcher, void *user);

/* Layers that were run so far, whatever became of them: it grows while a pass gets on. Any thread.
 */
uint64_t fv_decoder_layers_run(const fv_decoder *dec);

/* logits [n, vocab] on the host, F32, of n rows that left the last layer:
 * RMSNorm(x) Wlm^T. */
fv_status fv_decoder_logits(fv_decoder *dec, fv_tensor x, float *logits);

#endif
