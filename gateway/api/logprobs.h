#ifndef FOVEA_GATEWAY_API_LOGPROBS_H
#define FOVEA_GATEWAY_API_LOGPROBS_H

/* LOGPROBS: log-probabilities of tokens -> the field "logprobs" of a choice, in OpenAI's shapes.
 * For an unstreamed answer they are printed as they arrive: a tree would take many times the memory
 * of the text, and block the loop when printed at the end. Any thread. */
#include <jansson.h>

#include "gateway/api/request.h"

enum { FV_API_LOGPROBS_LISTS = 4 };

/* The logprobs of an unstreamed answer so far: lists as text, without brackets. {0}: none yet. */
typedef struct fv_api_logprobs {
    struct {
        char *text; /* [n] */
        size_t n, cap;
    } list[FV_API_LOGPROBS_LISTS];
} fv_api_logprobs;

/* Makes the logprobs of some tokens. *offset: bytes of text before them; advances by theirs. Gives
 * *out. */
fv_status fv_api_logprobs_json(fv_api_kind kind, const Fovea__Inference__V1__Tokens *t,
                               size_t *offset, json_t **out);

/* Appends the logprobs of some tokens to an answer's. */
fv_status fv_api_logprobs_add(fv_api_kind kind, const Fovea__Inference__V1__Tokens *t,
                              size_t *offset, fv_api_logprobs *to);
void fv_api_logprobs_free(fv_api_logprobs *l);

/* _size returns the bytes of the field's value as text; _write writes it without a NUL, and returns
 * its end. */
size_t fv_api_logprobs_size(fv_api_kind kind, const fv_api_logprobs *l);
char *fv_api_logprobs_write(fv_api_kind kind, const fv_api_logprobs *l, char *out);

#endif
