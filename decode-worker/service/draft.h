#ifndef FOVEA_DECODE_WORKER_SERVICE_DRAFT_H
#define FOVEA_DECODE_WORKER_SERVICE_DRAFT_H

/* THE WORKER'S DRAFT MODEL: its checkpoint, opened beside the worker's own. */
#include "decode-worker/speculate/draft_model.h"
#include "model/engine.h"

typedef struct fv_worker_draft {
    fv_engine engine;
    fv_draft_model *model;
} fv_worker_draft; /* {0} may be closed */

/* Opens the checkpoint of `opt` for drafts of `target`'s answers, with at most kv_bytes of KV (0: no limit). FV_EINVAL:
 * it has another vocabulary. Failures name the checkpoint. */
fv_status fv_worker_draft_open(const fv_engine_options *opt, const fv_engine *target,
                               size_t kv_bytes, fv_worker_draft *out);
void fv_worker_draft_close(fv_worker_draft *d);

#endif
