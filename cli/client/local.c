/* Opens and closes both workers' parts in one process. */
#include "cli/client/local_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

/* Limit for encoded images: some 300 images of 144 pixels, or 7 of 336 at 4096 columns. */
static const size_t IMAGES_BYTES = (size_t)64 << 20;

/* ---- opening --------------------------------------------------------------------------- */

/* Opens both sides' KV pools, the transport between them, and the scheduler. */
static fv_status open_sides(fv_local *l) {
    const fv_engine *e = &l->engine;
    const fv_text_config *text = &fv_checkpoint_config(e->ck)->text;
    fv_kv_shape shape = fv_engine_kv_shape(e, e->kv_dtype);
    fv_conversations_options keep = {.keep_s_max = FV_LOCAL_KEEP_S};
    if (strcmp(e->be.ops->name, "cpu") == 0) FV_TRY(fv_memory_check("kv-bytes", l->opt.kv_bytes));
    FV_TRY(fv_image_cache_open(IMAGES_BYTES, &l->images));
    FV_TRY(fv_kv_pool_open(e->be.device, &shape, l->opt.kv_bytes, &l->prefill_pool));
    FV_TRY(fv_kv_pool_open(e->be.device, &shape, l->opt.kv_bytes, &l->decode_pool));
    fv_receiver_options opt = {.pool = l->decode_pool,
                               .adapters = &e->adapters,
                               .model = e->fingerprint,
                               .sums = fv_engine_sums(e),
                               .n_vocab = text->vocab,
                               .n_group = text->n_head / text->n_kv,
                               .max_position = text->max_position,
                               .grants = fv_grants_options_default()};
    FV_TRY(fv_receiver_open(&opt, &l->receiver));
    FV_TRY(fv_transport_inproc(fv_receiver_sink(l->receiver), &l->transport));
    FV_TRY(fv_conversations_open(&keep, &l->conversations));
    l->runs = calloc((size_t)l->n_run_max, sizeof(fv_local_run *));
    l->logits = malloc(FV_LOCAL_TOGETHER * (size_t)text->vocab * sizeof *l->logits);
    if (!l->runs || !l->logits) return FV_FAIL(FV_ENOMEM, "out of memory for logits");
    return fv_scheduler_open(e, l->receiver, l->conversations, l->n_run_max, FV_LOCAL_PROMPT_TOKENS,
                             &fv_local_scheduler_hooks, &l->scheduler);
}

fv_status fv_local_open(const fv_local_options *opt, fv_local **out) {
    fv_local *l = calloc(1, sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for the engine");
    l->opt = *opt;
    if (opt->model) l->opt.model = l->model = strdup(opt->model);
    if (opt->model && !l->model) {
        free(l);
        return FV_FAIL(FV_ENOMEM, "out of memory for the engine");
    }
    l->n_run_max = opt->at_once > 0 ? opt->at_once : 1;
    fv_engine_options engine = {.checkpoint = opt->checkpoint,
                                .backend = opt->backend,
                                .isa = opt->isa,
                                .compute = opt->compute,
                                .kv_dtype = opt->kv_dtype,
                                .weights = opt->weights,
                                .adapter = opt->adapter,
                                .n_adapter = opt->n_adapter,
                                .progress = opt->progress,
                                .progress_user = opt->progress_user,
                                .threads = opt->threads,
                                .gpu = opt->gpu,
                                .gpu_trace = opt->gpu_trace,
                                .vision = true};
    fv_status st = fv_engine_open(&engine, &l->engine);
    if (st == FV_OK) st = open_sides(l);
    if (st == FV_OK)
        *out = l;
    else
        fv_local_close(l);
    return st;
}

void fv_local_close(fv_local *l) {
    if (!l) return;
    fv_local_drop(l);
    fv_scheduler_close(l->scheduler);
    fv_conversations_close(l->conversations);
    fv_transport_close(l->transport, NULL, NULL);
    fv_receiver_close(l->receiver);
    fv_kv_pool_close(l->decode_pool);
    fv_kv_pool_close(l->prefill_pool);
    fv_image_cache_close(l->images);
    fv_engine_close(&l->engine);
    free(l->model);
    free(l->runs);
    free(l->logits);
    free(l);
}

const fv_model_config *fv_local_config(const fv_local *l) {
    return fv_checkpoint_config(l->engine.ck);
}

const fv_generation_config *fv_local_generation(const fv_local *l) {
    return fv_checkpoint_generation(l->engine.ck);
}

int32_t fv_local_vocab(const fv_local *l) { return l->engine.n_vocab; }

const char *fv_local_isa(const fv_local *l) { return l->engine.be.isa; }

fv_compute fv_local_compute(const fv_local *l) { return l->engine.be.compute; }

fv_dtype fv_local_kv_dtype(const fv_local *l) { return l->engine.kv_dtype; }

const char *fv_local_fingerprint(const fv_local *l) { return l->engine.fingerprint; }

fv_engine *fv_local_engine(fv_local *l) { return &l->engine; }

void fv_report_free(fv_report *r) {
    free(r->digest);
    r->digest = NULL;
}
