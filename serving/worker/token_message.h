#ifndef FOVEA_SERVING_WORKER_TOKEN_MESSAGE_H
#define FOVEA_SERVING_WORKER_TOKEN_MESSAGE_H

/* TOKEN MESSAGE: a sampled token as a message. Any thread. */
#include "common/arena.h"
#include "inference.pb-c.h"
#include "text/sample.h"
#include "text/tokenizer.h"

/* Makes the message; *out is in the arena. tok: adds the text of each token; NULL: does not. */
fv_status fv_token_to_message(const fv_sampled *s, uint64_t digest, const fv_tokenizer *tok,
                              fv_arena *arena, Fovea__Inference__V1__Token **out);

#endif
