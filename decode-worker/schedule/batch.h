#ifndef FOVEA_DECODE_WORKER_SCHEDULE_BATCH_H
#define FOVEA_DECODE_WORKER_SCHEDULE_BATCH_H

/* CONTINUOUS BATCH: answers join and leave between steps; each step advances all of them by one
 * token, or by several where drafts were right (fv_batch_speculate). An answer that brings a prompt of several rows takes as many steps as its rows need: a
 * step runs at most prompt_tokens of such rows, first come first served, so that the others' tokens
 * do not wait for a whole prompt. The tokens of an answer depend neither on the other answers in the
 * batch nor on how its prompt was cut, nor on drafts. For the computing thread. */
#include "decode-worker/evict/evict.h"
#include "decode-worker/speculate/speculate.h"
#include "model/net/step.h"
#include "model/net/text_codes.h"
#include "text/generation.h"

typedef struct fv_batch fv_batch; /* opaque; borrows the model runner's decoder */

/* Opens a batch of at most n_max answers, with at most prompt_tokens (at least 1) prompt rows a step. */
fv_status fv_batch_open(fv_decoder *dec, int32_t n_max, int32_t prompt_tokens, fv_batch **out);
void fv_batch_close(fv_batch *b); /* every answer must have left; NULL is fine */

/* Adds an answer. The first n_held of its ids have run through the network; the others, at least one,
 * have not. Before each step, `evict` evicts entries and `text` compresses text that is due; NULL: not
 * at all. An answer's rows of a step end where text becomes due. Everything is borrowed until the answer
 * leaves. FV_EBUSY when the batch is full. */
fv_status fv_batch_join(fv_batch *b, fv_generation *seq, fv_kv *kv, fv_evict *evict,
                        fv_text_codes *text, int32_t n_held, void *user);

/* Lets an answer that has joined, until it leaves, run drafts once a step has chosen a token of it. Borrowed until it
 * leaves; its store must fit (fv_speculation_fits), and it must have no `evict`. */
void fv_batch_speculate(fv_batch *b, const fv_generation *seq, fv_speculation *s);

/* Runs drafts only as far as measured times make them worth it (the default); without `measured`, all of them. */
void fv_batch_weigh_drafts(fv_batch *b, bool measured);

/* Takes an answer out between two steps, whatever its state. Returns how many of its ids have run: if it
 * joins again with that n_held, it goes on as if it had not left. -1: the answer is not in the batch. */
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
    int32_t n_rows; /* rows of the answer that have run since its last token, or since it joined */
    int32_t n_wasted; /* rows of drafts that have run besides, and were wrong */
} fv_batch_event;
typedef void (*fv_batch_on_event)(void *ctx, const fv_batch_event *e);

/* Runs one step. Calls `on_event` once for each answer whose last row ran or that failed by itself, and once more for
 * each draft that was right; the answer's tokens come in order, and the others' may come between. A failure of the network fails the whole step: the batch is empty afterwards, and the store of every
 * answer that was in it is inconsistent. The callback must not change the batch. */
fv_status fv_batch_step(fv_batch *b, fv_batch_on_event on_event, void *ctx);

#endif
