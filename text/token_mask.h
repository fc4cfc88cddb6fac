#ifndef FOVEA_TEXT_TOKEN_MASK_H
#define FOVEA_TEXT_TOKEN_MASK_H

/* TOKEN MASK: which tokens an answer may have next. The rules are vLLM's. At the step that chooses
 * answer token t (0, 1, ...), after the answer tokens a_0 .. a_(t-1), a token i is forbidden if
 *
 *   allowed      the list of allowed ids is not empty and i is not in it; or
 *   bad words    i is the last id of a forbidden sequence s_0 .. s_k, and the answer ends with the ids before
 *                it, a_(t-k) .. a_(t-1) = s_0 .. s_(k-1). A sequence of one id is always forbidden; or
 *   min_tokens   t < min_tokens, and i ends an answer: an EOS id of the model or a stop id.
 *
 * A forbidden token's logit becomes -inf. Masks are applied last, after bias and penalties: these leave -inf
 * unchanged, so the result is that of vLLM's order (allowed, bad words, min_tokens, bias, penalties).
 * Log-probabilities that are reported are the model's own and know no masks.
 *
 * The rules apply in the order above, and none forbids the last token that is left: an answer of the one
 * allowed id EOS ends at once, whatever min_tokens is. (vLLM draws from an empty distribution there.)
 *
 * A bad word becomes one or two sequences, as in vLLM: its ids alone and, if that begins with another id and
 * has as many, its ids after a space. Other ways to write the word in tokens are not forbidden.
 *
 * Before these rules comes the grammar, if there is one: a token is forbidden if the answer with it is the beginning
 * of no text of the grammar, and what ends an answer if the answer may not end yet. The other rules never forbid the
 * last token that the grammar allows: a list of allowed ids of which it allows none has no effect. Where the grammar has
 * marks of a reasoning, what stands between them is free, and the answer cannot end inside.
 *
 * The mask depends on the rules and the answer only, so a replayed answer gets the same tokens. One thread at a
 * time, because a grammar remembers how far it has read. */
#include "text/calls/thinking.h"
#include "text/tokenizer.h"

enum {
    FV_MAX_ALLOWED = 1 << 15,
    FV_MAX_STOP_IDS = 256,
    FV_MAX_BAD_WORDS = 256,
    FV_BAD_WORD_BYTES_MAX = 256,
};

/* The rules of a request. {0}: none. */
typedef struct fv_token_rules {
    int32_t min_tokens; /* of the answer, before which nothing ends it; 0: none */
    int32_t n_allowed;  /* 0: all ids are allowed */
    const int32_t *allowed;
    int32_t n_stop_id;
    const int32_t *stop_id; /* ids that end the answer as EOS does */
    int32_t n_bad_word;
    const char *const *bad_word;
    bool keeps_space; /* the answer continues a text: the decoder cuts no space off its front */
    fv_reasoning reasoning;  /* where the prompt ends, of a grammar with marks of reasoning */
    fv_grammar_spec grammar; /* kind 0: none; its texts are borrowed until a mask is open */
    const fv_grammar_result
        *compiled; /* of `grammar`, borrowed as long; NULL: it is compiled then */
} fv_token_rules;

/* FV_EINVAL names the rule that is out of range for ids [0, n_vocab). */
fv_status fv_token_rules_check(const fv_token_rules *r, int32_t n_vocab);

typedef struct fv_token_mask fv_token_mask; /* opaque */

/* Makes the mask of checked rules for ids [0, n_vocab), of which ending[n_ending] end an answer. Copies
 * everything. *out is NULL if the rules forbid nothing. FV_EINVAL: a bad word has no tokens, or the grammar cannot
 * be compiled (grammar/grammar.h). */
fv_status fv_token_mask_open(const fv_token_rules *r, const fv_tokenizer *tok, int32_t n_vocab,
                             const int32_t *ending, int32_t n_ending, fv_token_mask **out);
void fv_token_mask_close(fv_token_mask *m); /* NULL is fine */

/* Whether anything may be forbidden after n tokens of the answer. */
bool fv_token_mask_acts(const fv_token_mask *m, int32_t n); /* false for NULL */

/* Sets the logits of forbidden tokens to -inf, after the answer's tokens answer[n]. l [n_vocab]: finite. FV_EINVAL:
 * the grammar allows no token of this vocabulary, the answer has left it, or a step costs too much. */
fv_status fv_token_mask_apply(fv_token_mask *m, const int32_t *answer, int32_t n, float *l);

#endif
