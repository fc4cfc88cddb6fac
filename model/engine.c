/* Opens everything that computing needs, in order, and closes it in reverse. */
#include "model/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "kernels/backends/open.h"
#include "kernels/tier.h"
#include "model/hub.h"

static bool is_auto(const char *name) { return !name || strcmp(name, "auto") == 0; }

/* "auto" leaves *out unchanged. */
static fv_status read_compute(const char *name, fv_compute *out) {
    if (is_auto(name)) return FV_OK;
    for (int c = 0; c < FV_N_COMPUTE; c++) {
        if (strcmp(name, fv_compute_name((fv_compute)c)) != 0) continue;
        *out = (fv_compute)c;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "invalid --compute '%s'; use auto, f32 or bf16", name);
}

fv_status fv_engine_kv_dtype(const char *name, fv_compute compute, fv_dtype *out) {
    if (is_auto(name)) name = fv_compute_name(compute);
    for (int t = 0; t < FV_N_DTYPE; t++) {
        if (strcmp(name, fv_dtype_name((fv_dtype)t)) != 0) continue;
        *out = (fv_dtype)t;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "invalid --kv-dtype '%s'; use auto, f32, bf16 or f16", name);
}

/* Chooses compute mode and KV dtype; the backend is open. */
static fv_status choose_precision(fv_engine *e, const fv_engine_options *opt) {
    bool on_cpu = strcmp(e->be.ops->name, "cpu") == 0;
    if (on_cpu && fv_checkpoint_text(e->ck)->embed.dtype == FV_BF16)
        e->be.compute = FV_COMPUTE_BF16;
    FV_TRY(read_compute(opt->compute, &e->be.compute));
    if (e->be.compute != FV_COMPUTE_F32 && !on_cpu)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "--compute %s needs --device cpu; a GPU takes --compute f32",
                       fv_compute_name(e->be.compute));
    FV_TRY(fv_engine_kv_dtype(opt->kv_dtype, e->be.compute, &e->kv_dtype));
    /* A GPU that rounds the inputs of products anyway keeps keys and values in the type of weights in 16 bits. */
    const fv_dtype of = fv_checkpoint_text(e->ck)->embed.dtype;
    if (is_auto(opt->kv_dtype) && fv_backend_tier(&e->be) != FV_TIER_EXACT &&
        (of == FV_BF16 || of == FV_F16))
        e->kv_dtype = of;
    return FV_OK;
}

/* Adds the weights' format to the fingerprint: workers that continue with each other's keys and values must have
 * the same weights. */
static void name_weights(fv_engine *e, const char *as) {
    size_t n = strlen(e->fingerprint);
    snprintf(e->fingerprint + n, sizeof e->fingerprint - n, "+%s", as);
}

/* Chooses how weights that files have in integers are multiplied. */
static fv_status choose_products(fv_engine *e, const fv_weights *to) {
    bool changed = false;
    if (to && !fv_checkpoint_is_quantized(e->ck))
        return FV_FAIL(FV_EUNSUPPORTED, "%s holds no quantized weights: leave out --weights %s",
                       fv_checkpoint_dir(e->ck), to->name);
    if (to) name_weights(e, to->fingerprint);
    if (to) return FV_OK;
    FV_TRY(fv_checkpoint_use_integers(e->ck, &e->be, &changed));
    if (changed) name_weights(e, "integers.1");
    return FV_OK;
}

/* Quantizes or dequantizes the weights. */
static fv_status quantize(fv_engine *e, const fv_engine_options *opt) {
    const fv_weights *to;
    FV_TRY(fv_weights_find(opt->weights, &to));
    if (fv_weights_are_numbers(to)) {
        FV_TRY(fv_checkpoint_dequantize(e->ck, &e->be, opt->progress, opt->progress_user));
        name_weights(e, to->fingerprint);
        return FV_OK;
    }
    if ((to || fv_checkpoint_is_quantized(e->ck)) && strcmp(e->be.ops->name, "cpu") != 0)
        return FV_FAIL(FV_EUNSUPPORTED, "weights in %s need --device cpu",
                       to ? to->name : "8 and 4 bits");
    if (!fv_weights_are_integers(to)) return choose_products(e, to);
    FV_TRY(fv_checkpoint_quantize(e->ck, &e->be, to, opt->progress, opt->progress_user));
    name_weights(e, to->fingerprint);
    return FV_OK;
}

/* Opens the adapters and adds them to the fingerprint: workers that continue with each other's keys and values must
 * have the same. */
static fv_status open_adapters(fv_engine *e, const fv_engine_options *opt) {
    char print[17];
    size_t n = strlen(e->fingerprint);
    if (opt->n_adapter == 0) return FV_OK;
    if (e->be.device != fv_device_host())
        return FV_FAIL(FV_EUNSUPPORTED, "--adapter needs --device cpu");
    FV_TRY(fv_adapters_open(opt->adapter, opt->n_adapter, fv_checkpoint_config(e->ck),
                            &e->adapter_arena, &e->adapters));
    FV_TRY(fv_adapters_fingerprint(&e->adapters, print));
    snprintf(e->fingerprint + n, sizeof e->fingerprint - n, "+lora.%s", print);
    return FV_OK;
}

fv_status fv_engine_check_tokenizer(const fv_model_config *cfg, const fv_tokenizer *tok,
                                    const char *from) {
    const char *token = fv_layout_image_token(cfg->layout.family);
    if (cfg->image_token == FV_IMAGE_TOKEN_NAMED) {
        if (fv_tokenizer_id(tok, token) >= 0) return FV_OK;
        return FV_FAIL(FV_EDATA,
                       "%s: tokenizer.json must have '%s', the token of an image: is it this "
                       "checkpoint's?",
                       from, token);
    }
    if (cfg->image_token < cfg->text.vocab || fv_tokenizer_id(tok, token) == cfg->image_token)
        return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s: tokenizer.json must have '%s' as id %d, the first after the vocabulary: "
                   "add_tokens('%s', special_tokens=True) of a tokenizer in transformers adds it",
                   from, token, cfg->image_token, token);
}

/* Finds the tokens that only the tokenizer names, after fv_engine_check_tokenizer. */
static fv_status find_tokens(const fv_engine *e) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    const char *image = fv_layout_image_token(cfg->layout.family), *end = cfg->chat_end;
    if (cfg->image_token != FV_IMAGE_TOKEN_NAMED) return FV_OK;
    return fv_checkpoint_set_tokens(e->ck, fv_tokenizer_id(e->tok, image),
                                    end ? fv_tokenizer_id(e->tok, end) : -1);
}

/* Sends the latent directions to the device: those of the one KV dtype that has some. */
static fv_status send_latent(fv_engine *e) {
    const char *why;
    for (int t = 0; t < FV_N_DTYPE; t++) {
        const fv_latent *l = fv_engine_latent(e, (fv_dtype)t, &why);
        if (l) return fv_latent_device_open(l, &e->be, &e->latent);
    }
    return FV_OK;
}

static fv_status open_network(fv_engine *e, const fv_engine_options *opt) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    fv_backend_options be = {
        .n_threads = opt->threads, .device = opt->gpu, .isa = opt->isa, .trace = opt->gpu_trace};
    FV_TRY(fv_backend_open(&e->be, opt->backend, &be));
    e->be_open = true;
    FV_TRY(choose_precision(e, opt));
    const fv_weights *to;
    FV_TRY(fv_weights_find(opt->weights, &to));
    FV_TRY(fv_checkpoint_load(e->ck, &e->be, fv_weights_are_integers(to) ? to : NULL, opt->progress,
                              opt->progress_user));
    FV_TRY(quantize(e, opt));
    FV_TRY(open_adapters(e, opt));
    FV_TRY(send_latent(e));
    FV_TRY(fv_decoder_open(&e->be, &cfg->text, fv_checkpoint_text(e->ck), &e->dec));
    if (!opt->vision || !cfg->has_vision) return FV_OK;
    FV_TRY(fv_vision_open(&e->be, &cfg->vision, fv_checkpoint_vision(e->ck),
                          fv_checkpoint_projector(e->ck), &e->vision));
    if (!cfg->video_tower) return FV_OK;
    e->video_config = fv_vision_config_of(cfg, true);
    return fv_vision_open(&e->be, &e->video_config, fv_checkpoint_video(e->ck),
                          fv_checkpoint_projector(e->ck), &e->video);
}

fv_status fv_engine_chat(const fv_engine *e, const char *spec, fv_chat **out) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    if (!spec[0]) spec = e->chat && e->chat[0] ? e->chat : cfg->chat;
    return fv_chat_open(spec, fv_checkpoint_dir(e->ck), cfg->text.family, cfg->has_vision, out);
}

/* A requested template must run; one that comes with the checkpoint may stay unused. */
static fv_status open_chat(fv_engine *e, const char *value) {
    fv_chat *chat;
    FV_TRY(fv_chat_read_spec(value ? value : "", &e->chat));
    if (!e->chat[0]) return FV_OK;
    FV_TRY(fv_engine_chat(e, "", &chat));
    fv_chat_free(chat);
    return FV_OK;
}

fv_status fv_engine_open(const fv_engine_options *opt, fv_engine *out) {
    fv_status st;
    fv_engine e = {0};
    FV_TRY(read_compute(opt->compute, &e.be.compute)); /* before the checkpoint is read */
    FV_TRY(fv_engine_kv_dtype(opt->kv_dtype, FV_COMPUTE_F32, &e.kv_dtype));
    const fv_weights *weights;
    FV_TRY(fv_weights_find(opt->weights, &weights));
    FV_TRY_GOTO(fv_checkpoint_open(opt->checkpoint, &e.ck), st, fail);
    FV_TRY_GOTO(fv_tokenizer_open(opt->checkpoint, &e.tok), st, fail);
    FV_TRY_GOTO(
        fv_engine_check_tokenizer(fv_checkpoint_config(e.ck), e.tok, fv_checkpoint_dir(e.ck)), st,
        fail);
    FV_TRY_GOTO(find_tokens(&e), st, fail);
    FV_TRY_GOTO(open_chat(&e, opt->chat), st, fail);
    fv_checkpoint_fingerprint(e.ck, e.fingerprint);
    fv_hub_name(opt->checkpoint, e.name, sizeof e.name);
    /* The network keeps the backend's address, so it is opened in its final place. */
    *out = e;
    st = open_network(out, opt);
    if (st != FV_OK) {
        fv_engine_close(out);
        return st;
    }
    int32_t vocab = fv_checkpoint_config(e.ck)->text.vocab, known = fv_tokenizer_vocab(e.tok);
    out->n_vocab = known < vocab ? known : vocab;
    FV_LOG(INFO, MODEL, "checkpoint=%s fingerprint=%s bytes=%zu isa=%s compute=%s kv_dtype=%s",
           opt->checkpoint, out->fingerprint, fv_engine_weight_bytes(out), out->be.isa,
           fv_compute_name(out->be.compute), fv_dtype_name(out->kv_dtype));
    if (fv_checkpoint_table_bytes(out->ck))
        FV_LOG(INFO, MODEL, "event=per-layer-embeddings bytes=%zu use=mapped",
               fv_checkpoint_table_bytes(out->ck));
    return FV_OK;
fail:
    fv_engine_close(&e);
    return st;
}

void fv_engine_close(fv_engine *e) {
    fv_vision_close(e->vision);
    fv_vision_close(e->video);
    fv_decoder_close(e->dec);
    fv_latent_on_device_close(&e->latent);
    if (e->be_open) fv_backend_close(&e->be);
    fv_tokenizer_free(e->tok);
    free(e->chat);
    fv_arena_fini(&e->adapter_arena);
    fv_checkpoint_close(e->ck);
    *e = (fv_engine){0};
}

uint64_t fv_engine_layers_run(const fv_engine *e) {
    return fv_decoder_layers_run(e->dec) + (e->vision ? fv_vision_layers_run(e->vision) : 0) +
           (e->video ? fv_vision_layers_run(e->video) : 0);
}

fv_generation_options fv_engine_generation_options(const fv_engine *e, bool ignore_eos) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    return (fv_generation_options){.sampling = fv_sampling_default(),
                                   .context = cfg->text.max_position,
                                   .n_vocab = e->n_vocab,
                                   .n_eos = ignore_eos ? 0 : cfg->n_eos,
                                   .eos = cfg->eos};
}

const char *fv_engine_sums(const fv_engine *e) {
    const fv_tier tier = fv_backend_tier(&e->be);
    if (tier == FV_TIER_EXACT) return fv_compute_name(e->be.compute);
    return tier == FV_TIER_AUTO ? "f32.auto" : "f32.fast";
}

const fv_latent *fv_engine_latent(const fv_engine *e, fv_dtype dtype, const char **why) {
    return fv_checkpoint_latent(e->ck, fv_dtype_name(dtype), fv_compute_name(e->be.compute), why);
}

size_t fv_engine_weight_bytes(const fv_engine *e) {
    return fv_checkpoint_bytes(e->ck) + fv_adapters_bytes(&e->adapters);
}

fv_kv_shape fv_engine_kv_shape(const fv_engine *e, fv_dtype dtype) {
    const fv_text_config *text = &fv_checkpoint_config(e->ck)->text;
    const char *why;
    const fv_latent *latent = fv_engine_latent(e, dtype, &why);
    return (fv_kv_shape){.n_layer = text->n_layer,
                         .n_kv = text->n_kv,
                         .d_head = text->d_head,
                         .dtype = dtype,
                         .latent = latent ? e->latent.layer : NULL,
                         .latent_sum = latent ? latent->checksum : 0,
                         .state_bytes = fv_recurrent_state_bytes(&text->recurrent)};
}
