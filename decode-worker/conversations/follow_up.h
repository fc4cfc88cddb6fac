#ifndef FOVEA_DECODE_WORKER_CONVERSATIONS_FOLLOW_UP_H
#define FOVEA_DECODE_WORKER_CONVERSATIONS_FOLLOW_UP_H

/* FOLLOW-UP: the next message of a kept conversation -> the ids that follow those it holds. */
#include "model/engine.h"
#include "text/prompt_form.h"

/* `last` is the last id of the answer. Turns close the answer as the template does; a text follows it
 * unchanged. Gives *ids [*n] (free it), at least one. *reasoning: whether they end inside that of the next answer. FV_EINVAL if an id is unknown or an
 * image's. */
fv_status fv_follow_up_ids(const fv_engine *e, const fv_prompt_form *q, int32_t last, int32_t **ids,
                           int32_t *n, fv_reasoning *reasoning);

#endif
