#ifndef FOVEA_DECODE_WORKER_SPECULATE_DRAFT_MODEL_H
#define FOVEA_DECODE_WORKER_SPECULATE_DRAFT_MODEL_H

/* DRAFT MODEL: a smaller text model of the same vocabulary guesses what the large one will say: the likeliest token, and
 * the one after that. It has KV of its own, which the pool of the answers does not count, and it sees the prompt's tokens only,
 * so it is for prompts without images.
 *
 *   answer    a b c d            the model ran   a b c x y    (x, y: drafts of before)
 *   draft     x, y leave its store; d runs; then each guess, to guess the next
 *
 * A long prompt is run in parts, one with every draft that is asked for; there is no guess until all of it has run. Whatever
 * fails, such as a full pool, ends the drafts of the answer and not the answer. For the computing thread. */
#include "decode-worker/speculate/draft.h"
#include "model/net/step.h"

typedef struct fv_draft_model fv_draft_model; /* opaque */

/* Opens a model for drafts with at most kv_bytes (0: no limit) of KV in all. Borrows the decoder. n_vocab: ids that may
 * be drafted. FV_EUNSUPPORTED: it has recurrent layers, whose state has no way back. */
fv_status fv_draft_model_open(fv_decoder *dec, const fv_kv_shape *shape, int32_t n_vocab,
                              size_t kv_bytes, fv_draft_model **out);
void fv_draft_model_close(fv_draft_model *m); /* every drafter is closed; NULL is fine */

typedef struct fv_drafter fv_drafter; /* opaque: the model's state of one answer */

fv_status fv_drafter_open(fv_draft_model *m, fv_drafter **out);
void fv_drafter_close(fv_drafter *d); /* NULL is fine */

/* Drafts from here. Borrowed. */
fv_draft_source fv_drafter_source(fv_drafter *d);

#endif
