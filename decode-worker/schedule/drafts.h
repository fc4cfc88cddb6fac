#ifndef FOVEA_DECODE_WORKER_SCHEDULE_DRAFTS_H
#define FOVEA_DECODE_WORKER_SCHEDULE_DRAFTS_H

/* DRAFTS OF AN ANSWER (decode-worker/speculate/speculate.h): whether it runs any, and their source. */
#include "decode-worker/schedule/scheduler.h"

/* Opens the source of an answer that has its conversation and generation, if the request speculates and nothing but
 * the last text rows remembers a draft that was wrong: no `evict` stage, and a store that fits. */
fv_status fv_answer_begin_drafts(const fv_engine *engine, fv_answer *x);

void fv_answer_end_drafts(fv_answer *x); /* frees the source, if there is one */

#endif
