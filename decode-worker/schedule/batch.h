#ifndef FOVEA_DECODE_WORKER_SCHEDULE_BATCH_H
#define FOVEA_DECODE_WORKER_SCHEDULE_BATCH_H

/* CONTINUOUS BATCH: answers join and leave between steps; each step advances all of them by one
 * token. An answer that brings a prompt of several rows takes as many steps as its rows need: a
 * step runs at most prompt_tokens of such rows, first come first served, so that the others' tokens
 * do not wait for the whole of it. What an answer says depends neither on who else is in the batch
 * nor on how its prompt was cut. The compute thread. */
#include "decode-worker/evict/evict.h"
#include "model/net/step.h"
#include "model/net/text_codes.h"
#include "text/generation.h"

typedef struct fv_batch fv_batch; /* opaque; borrows the model runner's decoder */

/* For at most n_max answers at a time, and at least 1 prompt row in a step. */
fv_status fv_batch_open(fv_decoder *dec, int32_t n_max, int32_t prompt_tokens, fv_batch **out);
void fv_batch_close(fv_batch *b); /* every answer must have left; NULL is fine */

/* An answer joins, of whose ids the first n_held have run through the network and the others, at
 * least one, not yet. Before each step `evict` lets go of the store what it does not see any more, and
 * text that is due becomes codes (`text`); NULL: nothing. A step ends where text becomes due. All are
 * borrowed until it leaves. FV_EBUSY when the batch is full. */
fv_status fv_batch_join(fv_batch *b, fv_generation *seq, fv_kv *kv, fv_evict *evict,
                        fv_text_codes *text, int32_t n_held, void *user);

/* Takes an answer out between two steps, whatever its state, and says how many of its ids have run: with
 * that n_held it can join again, and goes on as if it had not left. -1: it is not there, which is fine. */
int32_t fv_batch_leave(fv_batch *b, const fv_generation *seq);

int32_t fv_batch_count(const fv_batch *b);

/* The token that a step chose for an answer. Borrowed during the callback. */
typedef struct fv_batch_event {
    void *user; /* as given to join */
    fv_generation *seq;
    fv_status status;    /* not FV_OK: this answer failed and has left; fv_last_error() says why */
    const float *logits; /* [vocab] the token was chosen from */
    const fv_sampled *token;
    const char *text; /* [n_text] may be shown now */
    size_t n_text;
    fv_finish finish; /* with FV_OK; not FV_FINISH_NOT: the answer has left the batch */
    int32_t n_rows;   /* of it, that have run since it joined or since its token before this */
} fv_batch_event;
typedef void (*fv_batch_told)(void *ctx, const fv_batch_event *e);

/* One step; `on_event` once for each answer whose last row ran or that failed by itself. A failure
 * of the network fails the whole step: the batch is empty afterwards and every store in it
 * inconsistent. The callback must not change the batch. */
fv_status fv_batch_step(fv_batch *b, fv_batch_told on_event, void *ctx);

#endif
