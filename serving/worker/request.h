#ifndef FOVEA_SERVING_WORKER_REQUEST_H
#define FOVEA_SERVING_WORKER_REQUEST_H

/* REQUEST: what a request's messages say, as the engine takes it. Both workers read with these, so
 * that a turn that goes on is read as the first one was. Any thread. */
#include "common/arena.h"
#include "inference.pb-c.h"
#include "text/prompt_form.h"
#include "text/sample.h"

/* What is not given is the default. Not checked: fv_sampling_check. m may be NULL. */
fv_sampling fv_request_sampling(const Fovea__Inference__V1__Sampling *m, uint32_t n_logprobs);

/* Lists are in the arena, strings in the message. FV_EINVAL without any, when a turn has more than
 * n_image images, for more than `context` ids, and for an invalid id. */
fv_status fv_request_prompt(const Fovea__Inference__V1__Prompt *m, int32_t n_image, int32_t context,
                            fv_arena *arena, fv_prompt_form *out);

/* *ids [n] are in the arena. FV_EINVAL for more than `most`, and for an invalid id. */
fv_status fv_request_ids(const uint32_t *in, size_t n, int32_t most, fv_arena *arena,
                         int32_t **ids);

#endif
