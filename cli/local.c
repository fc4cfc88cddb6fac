/* Both workers' parts in one process: opened, and closed again. */
#include "cli/local_internal.h"

#include <stdlib.h>

#include "common/log.h"
#include "kernels/backends/open.h"

/* Of images and their rows: some 300 images of 144 pixels, or 7 of 336 at 4096 columns. */
static const size_t IMAGES_BYTES = (size_t)64 << 20;

/* ---- opening --------------------------------------------------------------------------- */

/* Both sides' KV memory, and the way from one to the other. */
static fv_status open_handoff(fv_local *l) {
    const fv_text_config *text = &fv_checkpoint_config(l->ck)->text;
    fv_kv_shape shape = {.n_layer = text->n_layer,
                         .n_kv = text->n_kv,
                         .d_head = text->d_head,
                         .dtype = l->opt.kv_dtype};
    FV_TRY(fv_kv_pool_open(l->be.device, &shape, l->opt.kv_bytes, &l->prefill_pool));
    FV_TRY(fv_kv_pool_open(l->be.device, &shape, l->opt.kv_bytes, &l->decode_pool));
    fv_receiver_options opt = {.pool = l->decode_pool,
                               .model = l->fingerprint,
                               .n_vocab = text->vocab,
                               .n_group = text->n_head / text->n_kv,
                               .max_position = text->max_position,
                               .grants = fv_grants_options_default()};
    FV_TRY(fv_receiver_open(&opt, &l->receiver));
    return fv_transport_inproc(fv_receiver_sink(l->receiver), &l->transport);
}

static fv_status open_network(fv_local *l) {
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    fv_backend_options be = {.n_threads = l->opt.threads,
                             .device = l->opt.gpu,
                             .isa = l->opt.isa,
                             .trace = l->opt.gpu_trace};
    FV_TRY(fv_backend_open(&l->be, l->opt.backend, &be));
    l->be_open = true;
    FV_TRY(fv_decoder_open(&l->be, &cfg->text, fv_checkpoint_text(l->ck), &l->dec));
    if (cfg->has_vision)
        FV_TRY(fv_vision_open(&l->be, &cfg->vision, fv_checkpoint_vision(l->ck),
                              fv_checkpoint_projector(l->ck), &l->vision));
    FV_TRY(fv_image_cache_open(IMAGES_BYTES, &l->images));
    l->runs = calloc((size_t)l->n_run_max, sizeof(fv_local_run *));
    l->logits = malloc(FV_LOCAL_TOGETHER * (size_t)cfg->text.vocab * sizeof *l->logits);
    if (!l->runs || !l->logits) return FV_FAIL(FV_ENOMEM, "out of memory for logits");
    fv_conversations_options keep = {.keep_s_max = FV_LOCAL_KEEP_S};
    FV_TRY(fv_conversations_open(&keep, &l->conversations));
    return fv_batch_open(l->dec, l->n_run_max, FV_LOCAL_PROMPT_ROWS, &l->batch);
}

fv_status fv_local_open(const fv_local_options *opt, fv_local **out) {
    fv_status st;
    fv_local *l = calloc(1, sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for the engine");
    l->opt = *opt;
    l->n_run_max = opt->at_once > 0 ? opt->at_once : 1;
    FV_TRY_GOTO(fv_checkpoint_open(opt->checkpoint, &l->ck), st, fail);
    FV_TRY_GOTO(fv_tokenizer_open(opt->checkpoint, &l->tok), st, fail);
    fv_checkpoint_fingerprint(l->ck, l->fingerprint);
    FV_TRY_GOTO(open_network(l), st, fail);
    FV_TRY_GOTO(open_handoff(l), st, fail);
    int32_t vocab = fv_checkpoint_config(l->ck)->text.vocab;
    l->n_vocab = fv_tokenizer_vocab(l->tok) < vocab ? fv_tokenizer_vocab(l->tok) : vocab;
    FV_LOG(INFO, MODEL, "checkpoint=%s fingerprint=%s bytes=%zu isa=%s", opt->checkpoint,
           l->fingerprint, fv_checkpoint_bytes(l->ck), l->be.isa);
    *out = l;
    return FV_OK;
fail:
    fv_local_close(l);
    return st;
}

void fv_local_close(fv_local *l) {
    if (!l) return;
    fv_local_drop(l);
    fv_conversations_close(l->conversations);
    fv_batch_close(l->batch);
    fv_transport_close(l->transport, NULL, NULL);
    fv_receiver_close(l->receiver);
    fv_kv_pool_close(l->decode_pool);
    fv_kv_pool_close(l->prefill_pool);
    fv_image_cache_close(l->images);
    fv_vision_close(l->vision);
    fv_decoder_close(l->dec);
    if (l->be_open) fv_backend_close(&l->be);
    fv_tokenizer_free(l->tok);
    fv_checkpoint_close(l->ck);
    free(l->runs);
    free(l->logits);
    free(l);
}

const fv_model_config *fv_local_config(const fv_local *l) { return fv_checkpoint_config(l->ck); }

const fv_generation_config *fv_local_generation(const fv_local *l) {
    return fv_checkpoint_generation(l->ck);
}

const char *fv_local_isa(const fv_local *l) { return l->be.isa; }

const char *fv_local_fingerprint(const fv_local *l) { return l->fingerprint; }

void fv_report_free(fv_report *r) {
    free(r->digest);
    r->digest = NULL;
}
