/* Runs the worker's own tiny request; see probe.h. */
#include "decode-worker/service/probe.h"

#include <assert.h>

static void on_event(void *ctx, const fv_batch_event *e) { *(fv_status *)ctx = e->status; }

static fv_status step(fv_batch *batch, fv_generation *seq, fv_kv *kv) {
    fv_status took = FV_OK;
    FV_TRY(fv_batch_join(batch, seq, kv, NULL, NULL, 0, NULL));
    FV_TRY(fv_batch_step(batch, on_event, &took));
    fv_batch_leave(batch, seq);
    return took;
}

fv_status fv_probe(const fv_engine *e, fv_kv_pool *pool, fv_batch *batch) {
    assert(fv_batch_count(batch) == 0);
    const fv_text_config *text = &fv_checkpoint_config(e->ck)->text;
    int32_t id = text->bos >= 0 ? text->bos : 0;
    fv_generation_options opt = fv_engine_generation_options(e, true);
    opt.max_tokens = 1;
    fv_generation *seq = NULL;
    fv_kv *kv = NULL;
    fv_status st;
    FV_TRY_GOTO(fv_generation_open(&opt, e->tok, &id, 1, 1, &seq), st, out);
    FV_TRY_GOTO(fv_kv_open(pool, &kv), st, out);
    st = step(batch, seq, kv);
out:
    fv_kv_close(kv);
    fv_generation_close(seq);
    return st;
}
