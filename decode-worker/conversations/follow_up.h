#ifndef FOVEA_DECODE_WORKER_CONVERSATIONS_FOLLOW_UP_H
#define FOVEA_DECODE_WORKER_CONVERSATIONS_FOLLOW_UP_H

/* FOLLOW: what a kept conversation goes on with -> the ids behind those that it holds. */
#include "model/engine.h"
#include "text/prompt_form.h"

/* `last` is the last id of the answer. Turns close it as the template does; a text stands behind it
 * as it is written. Gives *ids [*n] (free it), one at least, none of them an
 * image's or unknown: else FV_EINVAL. */
fv_status fv_follow_up_ids(const fv_engine *e, const fv_prompt_form *q, int32_t last, int32_t **ids,
                           int32_t *n);

#endif
