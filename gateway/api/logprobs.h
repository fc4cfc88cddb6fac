#ifndef FOVEA_GATEWAY_API_LOGPROBS_H
#define FOVEA_GATEWAY_API_LOGPROBS_H

/* LOGPROBS: log-probabilities of tokens -> the field "logprobs" of a choice, in OpenAI's shapes, and
 * "prompt_logprobs", in vLLM's.
 *
 * A token's entry is given out when text behind its text_offset has come, as the text of a token may be
 * held back: so the tokens of a stop string that is cut off are never given out. Offsets count characters
 * of the returned text.
 *
 * In the objects of a completion, whose keys are the tokens' texts, a text that is no UTF-8 is written
 * "bytes:\xc3", as OpenAI writes it, and of equal texts the likeliest has the text and the others are
 * "token_id:N". The token itself is always among its alternatives.
 *
 * For an unstreamed answer entries are printed as they arrive: a tree would take many times the memory of
 * the text, and block the loop when printed at the end. Any thread. */
#include <jansson.h>

#include "gateway/api/request.h"

/* Values of a JSON array as text, without the brackets. {0}: none; owned. */
typedef struct fv_api_list {
    char *text; /* [n] */
    size_t n, cap;
} fv_api_list;

/* Appends the values of an array. */
fv_status fv_api_list_add(fv_api_list *list, const json_t *array);

enum { FV_API_LOGPROBS_LISTS = 4 };

typedef struct fv_api_logprobs {
    fv_api_kind kind;
    bool as_ids;   /* name tokens by their ids */
    uint32_t base; /* characters before the answer: an echoed prompt's */
    fv_api_list
        list[FV_API_LOGPROBS_LISTS]; /* entries that are given out, of an unstreamed answer */
    /* private: entries that wait */
    json_t *held[FV_API_LOGPROBS_LISTS];
    uint32_t *offset; /* [n_held] */
    size_t n_held, cap_held;
} fv_api_logprobs; /* {kind} has none yet */

void fv_api_logprobs_free(fv_api_logprobs *l);

/* Adds entries of an answer's tokens, or of the prompt's tokens, which come first. */
fv_status fv_api_logprobs_add(fv_api_logprobs *l, const Fovea__Inference__V1__Tokens *t);
fv_status fv_api_logprobs_add_prompt(fv_api_logprobs *l,
                                     const Fovea__Inference__V1__PromptTokens *t);

/* Give out the entries with an offset below n_char; UINT32_MAX: all. _take makes the field of a chunk of a
 * stream, *out NULL if there is none; _keep adds them to `list`. */
fv_status fv_api_logprobs_take(fv_api_logprobs *l, uint32_t n_char, json_t **out);
fv_status fv_api_logprobs_keep(fv_api_logprobs *l, uint32_t n_char);

/* Appends "prompt_logprobs" of tokens of a prompt: null, or an object by ids. */
fv_status fv_api_prompt_logprobs_add(const Fovea__Inference__V1__PromptTokens *t,
                                     fv_api_list *list);

/* _size returns the bytes of the field's value as text; _write writes it without a NUL, and returns
 * its end. */
size_t fv_api_logprobs_size(const fv_api_logprobs *l);
char *fv_api_logprobs_write(const fv_api_logprobs *l, char *out);

#endif
