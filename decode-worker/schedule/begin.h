#ifndef FOVEA_DECODE_WORKER_SCHEDULE_BEGIN_H
#define FOVEA_DECODE_WORKER_SCHEDULE_BEGIN_H

/* THE BEGINNING OF AN ANSWER: its conversation, memory for its tokens, and the sequence that chooses
 * them. The computing thread. */
#include "decode-worker/schedule/scheduler.h"

typedef struct fv_beginning {
    const fv_engine *engine;         /* borrowed */
    fv_conversations *conversations; /* borrowed */
} fv_beginning;

/* Sets session, seq and n_held of an answer that has attached to its hand-off; takes the parts of
 * *got that its conversation needs. A failure may leave a session, which the caller ends. */
fv_status fv_answer_begin(const fv_beginning *a, fv_answer *x, fv_received *got);

/* The same for an answer that goes on with a kept conversation. FV_ENOTFOUND: none of this tenant
 * has its name. The refusal TENANT_FULL: the tenant would have more KV than it may. */
fv_status fv_answer_resume(const fv_beginning *a, fv_answer *x);

#endif
