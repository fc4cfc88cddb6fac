/* Opens the draft model. On the loop thread, before the computing thread runs and after it has ended. */
#include "decode-worker/service/draft.h"

#include "decode-worker/schedule/drafts.h"

static fv_status open_model(const fv_engine *target, size_t kv_bytes, fv_worker_draft *d) {
    FV_TRY(fv_draft_check_vocabulary(&d->engine, target));
    fv_kv_shape shape = fv_engine_kv_shape(&d->engine, d->engine.kv_dtype);
    int32_t n = d->engine.n_vocab < target->n_vocab ? d->engine.n_vocab : target->n_vocab;
    return fv_draft_model_open(d->engine.dec, &shape, n, kv_bytes, &d->model);
}

fv_status fv_worker_draft_open(const fv_engine_options *opt, const fv_engine *target,
                               size_t kv_bytes, fv_worker_draft *out) {
    fv_status st = fv_engine_open(opt, &out->engine);
    if (st == FV_OK) st = open_model(target, kv_bytes, out);
    if (st == FV_OK) return FV_OK;
    fv_worker_draft_close(out);
    return fv_fail_prefix(st, "--draft %s", opt->checkpoint);
}

void fv_worker_draft_close(fv_worker_draft *d) {
    fv_draft_model_close(d->model);
    d->model = NULL;
    fv_engine_close(&d->engine);
}
