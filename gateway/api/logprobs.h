#ifndef FOVEA_GATEWAY_API_LOGPROBS_H
#define FOVEA_GATEWAY_API_LOGPROBS_H

/* LOGPROBS: log-probabilities of tokens -> the field "logprobs" of a choice, in OpenAI's shapes. Those of a whole answer
 * are printed as they come: a tree of them would take many times their text, and the time to print it at the end. Any
 * thread. */
#include <jansson.h>

#include "gateway/api/request.h"

enum { FV_API_LOGPROBS_LISTS = 4 };

/* Of a whole answer, so far: its lists as text, without brackets. {0}: none yet. */
typedef struct fv_api_logprobs {
    struct {
        char *text; /* [n] */
        size_t n, cap;
    } list[FV_API_LOGPROBS_LISTS];
} fv_api_logprobs;

/* Those of some tokens. *offset: bytes of text before them, to which theirs are added. Gives *out. */
fv_status fv_api_logprobs_json(fv_api_kind kind, const Fovea__Inference__V1__Tokens *t,
                               size_t *offset, json_t **out);

/* Adds them to an answer's. */
fv_status fv_api_logprobs_add(fv_api_kind kind, const Fovea__Inference__V1__Tokens *t,
                              size_t *offset, fv_api_logprobs *to);
void fv_api_logprobs_free(fv_api_logprobs *l);

/* Bytes of the field's value as text; and writes it, without a NUL. */
size_t fv_api_logprobs_size(fv_api_kind kind, const fv_api_logprobs *l);
char *fv_api_logprobs_write(fv_api_kind kind, const fv_api_logprobs *l, char *out); /* its end */

#endif
