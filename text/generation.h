#ifndef FOVEA_TEXT_GENERATION_H
#define FOVEA_TEXT_GENERATION_H

/* ONE ANSWER: from logits to shown text, token by token, until it ends.
 *
 *   logits --sample--> token --detokenise--> text --stop strings--> text that may be shown
 *
 * It ends with the first of: an EOS or stop id; a stop string that is complete after token min_tokens or
 * later; max_tokens or the context. The ending id is a token of the answer without text, unless
 * include_stop. A token's text_offset counts the characters (code points) of the detokenised text before
 * it, whether or not a stop string cuts them; within a character of several tokens it is that of the
 * character.
 *
 * An answer's state holds everything that choosing tokens depends on and nothing of the network, so the
 * worker that prefilled can take the first token and another one can continue. One thread at a
 * time. */
#include "text/sample.h"
#include "text/stop.h"
#include "text/tokenizer.h"

typedef struct fv_generation_options {
    fv_sampling sampling;
    fv_token_rules rules; /* copied */
    int32_t max_tokens;   /* of the answer, at least 1 */
    int32_t context;      /* tokens of prompt and answer at which the answer ends */
    int32_t n_vocab;      /* ids that may be chosen */
    int32_t n_eos;
    const int32_t *eos; /* [n_eos] ids that end the answer; copied */
    int32_t n_stop;
    const char *const *stop; /* [n_stop] copied */
    bool show_special;       /* special tokens are text, in their written form */
    /* The text continues the prompt's: a decoder cuts no space off its front. */
    bool continue_text;
    bool include_stop; /* the text includes the stop string, or the text of the ending token */
    int32_t n_forced;
    const int32_t *forced; /* [n_forced] the answer's first tokens, whatever the logits; borrowed */
} fv_generation_options;

typedef enum fv_finish {
    FV_FINISH_NOT = 0, /* the answer goes on */
    FV_FINISH_LENGTH,  /* max_tokens or the context is reached */
    FV_FINISH_EOS,     /* an EOS id or a stop id */
    FV_FINISH_STOP,    /* a stop string */
} fv_finish;
const char *fv_finish_name(fv_finish f); /* "running", "length", "eos", "stop" */

typedef struct fv_generation fv_generation; /* opaque; borrows the tokenizer */

/* ids [n]: the prompt's n_prompt ids, then tokens of the answer that were chosen before (they
 * are not shown again). FV_EINVAL names an option out of range. */
fv_status fv_generation_open(const fv_generation_options *opt, const fv_tokenizer *tok,
                             const int32_t *ids, int32_t n, int32_t n_prompt, fv_generation **out);
/* Finds how an answer with these tokens has ended: FV_FINISH_NOT if it goes on, or has no tokens yet. For
 * callers that have the tokens but lost the reason. FV_EINVAL: it has more than max_tokens. */
fv_status fv_generation_ended(const fv_generation_options *opt, const fv_tokenizer *tok,
                              const int32_t *ids, int32_t n, int32_t n_prompt, fv_finish *out);
void fv_generation_close(fv_generation *s); /* NULL is fine */

/* Chooses the next token from logits [n_vocab or more]. *token and *text [*n_text] (what can be
 * output now, without NUL bytes: U+FFFD replaces them) are borrowed until the next call. When the
 * answer ends here, fv_generation_finish has the reason, and text that was held back is in *text.
 * FV_EDATA when a logit is not finite: the answer cannot go on. */
fv_status fv_generation_take(fv_generation *s, const float *logits, const fv_sampled **token,
                             const char **text, size_t *n_text);

fv_finish fv_generation_finish(const fv_generation *s);

/* How many more tokens the answer may have. */
int32_t fv_generation_left(const fv_generation *s);

/* Prompt and answer so far. The address stays the same until close. */
const int32_t *fv_generation_ids(const fv_generation *s, int32_t *n, int32_t *n_prompt);

#endif
