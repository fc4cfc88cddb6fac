#ifndef FOVEA_CLI_EVAL_DOCUMENT_H
#define FOVEA_CLI_EVAL_DOCUMENT_H

/* DOCUMENTS: text that is taken for an image, so that policies can be measured on text models whose weights were
 * trained on real text.
 *
 *   chat:      [begin of the user's turn] [document: N visual tokens] [question, answer's begin]
 *   no question: [begin of the user's turn] [document: N visual tokens] [its next tokens]
 *
 * The first tokens, which get attention whatever they are, stay text. A document is cut after N tokens, needles
 * included; a needle is put behind the end of a sentence. */
#include "cli/client/local.h"
#include "eval/benchmark/benchmark.h"

enum {
    FV_EVAL_TAIL = 16
}; /* text tokens that a document without a question ends its prompt with */

typedef struct fv_eval_document {
    int32_t *id; /* [n + n_after] owned */
    int32_t n, first, n_visual;
    int32_t n_after; /* the document's tokens behind the prompt; only without a question */
} fv_eval_document;  /* {0} is empty and may be freed */

/* Makes the prompt of an item with a document of which `span` tokens are visual; `n_after`: how many tokens to
 * keep behind it if it has no question. FV_EINVAL, saying how many tokens it has, if the document is too short. */
fv_status fv_eval_document_make(fv_local *local, const fv_benchmark_item *item, int32_t span,
                                int32_t n_after, fv_eval_document *out);

/* Sets the prompt of a request, which borrows it. */
void fv_eval_document_ask(const fv_eval_document *d, fv_ask *ask);
void fv_eval_document_free(fv_eval_document *d);

#endif
