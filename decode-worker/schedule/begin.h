#ifndef FOVEA_DECODE_WORKER_SCHEDULE_BEGIN_H
#define FOVEA_DECODE_WORKER_SCHEDULE_BEGIN_H

/* THE BEGINNING OF AN ANSWER: sets up its conversation, memory for its tokens, and the generation that
 * chooses them. For the computing thread. */
#include "decode-worker/schedule/scheduler.h"

typedef struct fv_answer_sources {
    const fv_engine *engine;         /* borrowed */
    fv_conversations *conversations; /* borrowed */
    fv_draft_model *draft_model;     /* borrowed; NULL: none */
} fv_answer_sources;

/* Sets session, seq and n_held of an answer that has attached to its hand-off; takes from *got what
 * the conversation owns. A failure may leave a session, which the caller ends. */
fv_status fv_answer_begin(const fv_answer_sources *a, fv_answer *x, fv_received *got);

/* The same for an answer that continues a kept conversation. FV_ENOTFOUND: this tenant has no
 * conversation of that name. Refused with TENANT_FULL if the tenant would have more KV than it may. */
fv_status fv_answer_resume(const fv_answer_sources *a, fv_answer *x);

#endif
