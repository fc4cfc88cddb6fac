#ifndef FOVEA_DECODE_WORKER_SCHEDULE_DRAFTS_H
#define FOVEA_DECODE_WORKER_SCHEDULE_DRAFTS_H

/* DRAFTS OF AN ANSWER (decode-worker/speculate/speculate.h): whether it runs any, and their source. */
#include "decode-worker/schedule/scheduler.h"

/* Opens the source of an answer that has its conversation and generation, if the request speculates and nothing but
 * the last text rows remembers a draft that was wrong: no `evict` stage, and a store that fits. model: drafts too, if
 * the prompt has no images; NULL: none does. */
fv_status fv_answer_begin_drafts(const fv_engine *engine, fv_draft_model *model, fv_answer *x);

void fv_answer_end_drafts(fv_answer *x); /* frees the sources, if there are any */

/* Whether `draft` has the tokens of `target`, id by id; FV_EINVAL says which one differs. */
fv_status fv_draft_check_vocabulary(const fv_engine *draft, const fv_engine *target);

#endif
