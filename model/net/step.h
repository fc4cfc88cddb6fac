#ifndef FOVEA_MODEL_NET_STEP_H
#define FOVEA_MODEL_NET_STEP_H

/* STEP: one pass of new tokens through the whole text model, for any number of sequences. A
 * sequence brings one token in plain decoding, several when a conversation goes on. */
#include "model/net/decoder.h"

typedef struct fv_step_seq {
    fv_kv *kv;          /* holds everything before these tokens */
    int32_t n;          /* new tokens, at least 1 */
    const int32_t *ids; /* [n] */
    int32_t pos;        /* position of the first one */
    bool partial;       /* more of its rows follow in a later step: no logits */
    int32_t
        n_before; /* rows ahead of the last one whose logits are wanted, too: less than n, 0 if partial. Not with
                         * an accumulator (accum.h) or where packed rows are observed (expand.h) */
} fv_step_seq;

typedef struct fv_model_runner fv_model_runner; /* opaque; borrows the decoder */

fv_status fv_model_runner_open(fv_decoder *dec, fv_model_runner **out);
void fv_model_runner_close(fv_model_runner *st); /* NULL is fine */

/* Appends every sequence's tokens to its store; writes logits [rows, vocab] to the host: of each sequence that is not
 * partial, after its last 1 + n_before tokens. Logits are not checked and may be NaN; the
 * sampler checks. FV_EBUSY when the KV pool is full. On failure the stores are inconsistent: close
 * them. */
fv_status fv_model_runner_run(fv_model_runner *st, const fv_step_seq *seq, int32_t n_seq,
                              float *logits);

#endif
