/* Describes a checkpoint in messages: the model, from its configuration, and the properties in which the
 * workers of a fleet must agree. Any thread. */
#include "serving/worker/model_info.h"

#include <stdio.h>
#include <string.h>

#include "handoff/kv_sections.h"
#include "serving/layout_message.h"
#include "text/calls/calls.h"
#include "text/calls/thinking.h"
#include "text/chat.h"

typedef Fovea__Inference__V1__Model model_message;
typedef Fovea__Inference__V1__Limits limits_message;
typedef Fovea__Fleet__V1__Introduction introduction_message;

static fv_status copy(fv_arena *a, const char *s, char **out) {
    return fv_arena_strndup(a, s, strlen(s), out);
}

/* The data type of the layers; other tensors may have another. */
static const char *weights_dtype(const fv_engine *e) {
    return fv_dtype_name(fv_checkpoint_text(e->ck)->layer[0].q.dtype);
}

static fv_status describe_schedules(const fv_checkpoint *ck, fv_arena *a, model_message *m) {
    int32_t n;
    const fv_schedule *fitted = fv_checkpoint_schedules(ck, &n);
    Fovea__Inference__V1__Schedule *s;
    FV_TRY(FV_ARENA_NEW(a, n, m->fitprune));
    FV_TRY(FV_ARENA_NEW(a, n, s));
    for (int32_t i = 0; i < n; i++) {
        fovea__inference__v1__schedule__init(&s[i]);
        s[i].target = (uint32_t)fitted[i].target;
        s[i].n_dropped = m->n_layer;
        FV_TRY(FV_ARENA_NEW(a, m->n_layer, s[i].dropped));
        for (uint32_t l = 0; l < m->n_layer; l++) s[i].dropped[l] = (uint32_t)fitted[i].leave[l];
        m->fitprune[i] = &s[i];
    }
    m->n_fitprune = (size_t)n;
    return FV_OK;
}

/* Describes the calibration, on which the router's bounds of bytes depend. */
static fv_status describe_calibration(const fv_engine *e, fv_dtype kv_dtype, fv_arena *a,
                                      model_message *m) {
    const fv_checkpoint *ck = e->ck;
    const int32_t *source_layer = fv_checkpoint_blocks(ck);
    const char *why = fv_checkpoint_uncalibrated(ck);
    if (why) FV_TRY(copy(a, why, &m->uncalibrated));
    m->vtw_layer = (uint32_t)fv_checkpoint_withdraw(ck);
    const char *no_latent;
    const fv_latent *latent = fv_engine_latent(e, kv_dtype, &no_latent);
    m->latent_layers = latent ? (uint32_t)latent->info.n_group_layer : 0;
    m->latent_directions = latent ? (uint32_t)latent->info.n_dir : 0;
    m->n_latent_steps = latent ? (size_t)(latent->n_group * FV_LATENT_STEPS) : 0;
    if (latent) FV_TRY(FV_ARENA_NEW(a, m->n_latent_steps, m->latent_steps));
    if (latent) memcpy(m->latent_steps, latent->steps, m->n_latent_steps * sizeof *latent->steps);
    if (!latent) FV_TRY(copy(a, no_latent, &m->no_latent));
    FV_TRY(describe_schedules(ck, a, m));
    if (!source_layer) return FV_OK;
    FV_TRY(FV_ARENA_NEW(a, m->n_layer, m->lazy_source_layers));
    m->n_lazy_source_layers = m->n_layer;
    for (uint32_t l = 0; l < m->n_layer; l++) m->lazy_source_layers[l] = (uint32_t)source_layer[l];
    return FV_OK;
}

/* Checks the names of forms; "none" stands for none. */
static fv_status check_parsers(const fv_model_info_options *opt) {
    const char *calls = opt->tool_parser, *thinking = opt->reasoning_parser;
    if (calls && strcmp(calls, "none") != 0 && !fv_calls_form_named(calls))
        return FV_FAIL(FV_EINVAL, "--tool-parser %.64s: unknown; available: none, %s", calls,
                       fv_calls_form_names());
    if (thinking && strcmp(thinking, "none") != 0 && !fv_thinking_form_named(thinking))
        return FV_FAIL(FV_EINVAL, "--reasoning-parser %.64s: unknown; available: none, %s",
                       thinking, fv_thinking_form_names());
    return FV_OK;
}

static const char *parser_of(const char *chosen, const char *found) {
    if (!chosen) return found;
    return strcmp(chosen, "none") == 0 ? "" : chosen;
}

/* If the default template does not run, a request can still name another. */
static fv_status describe_chat(const fv_engine *e, const fv_model_info_options *opt, fv_arena *a,
                               model_message *m) {
    fv_chat *chat;
    const bool runs = fv_engine_chat(e, "", &chat) == FV_OK;
    const char *calls = parser_of(opt->tool_parser, runs ? fv_chat_tool_parser(chat) : "");
    const char *thinking =
        parser_of(opt->reasoning_parser, runs ? fv_chat_reasoning_parser(chat) : "");
    fv_status st = check_parsers(opt);
    if (st == FV_OK && runs) st = copy(a, fv_chat_name(chat), &m->chat_template);
    if (st == FV_OK) st = copy(a, calls, &m->tool_parser);
    if (st == FV_OK) st = copy(a, thinking, &m->reasoning_parser);
    if (runs) fv_chat_free(chat);
    return st;
}

static fv_status check_model_name(const fv_model_info_options *opt, int32_t at) {
    const char *name = opt->models[at];
    size_t n = strlen(name);
    bool plain = n > 0 && n <= FV_MODEL_NAME_MAX;
    for (size_t i = 0; i < n; i++) plain &= (unsigned char)name[i] > ' ' && name[i] != 0x7f;
    if (!plain)
        return FV_FAIL(FV_EINVAL,
                       "--served-model-name must have 1..%d bytes, without spaces and control "
                       "characters",
                       FV_MODEL_NAME_MAX);
    for (int32_t i = 0; i < at; i++)
        if (strcmp(opt->models[i], name) == 0)
            return FV_FAIL(FV_EINVAL, "--served-model-name %s is given twice", name);
    return FV_OK;
}

static fv_status name_model(const fv_engine *e, const fv_model_info_options *opt, fv_arena *a,
                            model_message *m) {
    if (opt->n_model > FV_MODEL_NAMES_MAX)
        return FV_FAIL(FV_EINVAL, "a model has at most %d names (--served-model-name)",
                       FV_MODEL_NAMES_MAX);
    for (int32_t i = 0; i < opt->n_model; i++) FV_TRY(check_model_name(opt, i));
    FV_TRY(copy(a, opt->n_model ? opt->models[0] : e->name, &m->name));
    FV_TRY(FV_ARENA_NEW(a, opt->n_model, m->aliases));
    for (int32_t i = 1; i < opt->n_model; i++)
        FV_TRY(copy(a, opt->models[i], &m->aliases[m->n_aliases++]));
    return FV_OK;
}

/* Adapters and the model share one space of names. */
static fv_status describe_adapters(const fv_engine *e, fv_arena *a, model_message *m) {
    const fv_adapters *all = &e->adapters;
    Fovea__Inference__V1__Adapter *x;
    FV_TRY(FV_ARENA_NEW(a, all->n, m->adapters));
    FV_TRY(FV_ARENA_NEW(a, all->n, x));
    for (int32_t i = 0; i < all->n; i++) {
        const fv_adapter *from = &all->adapter[i];
        bool taken = strcmp(from->name, m->name) == 0 || strcmp(from->name, m->fingerprint) == 0;
        for (size_t k = 0; k < m->n_aliases; k++) taken |= !strcmp(from->name, m->aliases[k]);
        if (taken)
            return FV_FAIL(FV_EINVAL,
                           "--adapter %s has a name of the model (--served-model-name): choose "
                           "another",
                           from->name);
        fovea__inference__v1__adapter__init(&x[i]);
        FV_TRY(copy(a, from->name, &x[i].name));
        FV_TRY(copy(a, from->digest, &x[i].digest));
        x[i].rank = (uint32_t)from->rank;
        x[i].bytes = from->bytes;
        m->adapters[m->n_adapters++] = &x[i];
    }
    return FV_OK;
}

static fv_status describe_model(const fv_engine *e, const fv_model_info_options *opt, fv_arena *a,
                                model_message **out) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    model_message *m;
    limits_message *limits;
    FV_TRY(FV_ARENA_NEW(a, 1, m));
    FV_TRY(FV_ARENA_NEW(a, 1, limits));
    fovea__inference__v1__model__init(m);
    fovea__inference__v1__limits__init(limits);
    FV_TRY(name_model(e, opt, a, m));
    FV_TRY(copy(a, e->fingerprint, &m->fingerprint));
    FV_TRY(describe_adapters(e, a, m));
    FV_TRY(copy(a, cfg->family->name, &m->family));
    m->n_layer = (uint32_t)cfg->text.n_layer;
    m->n_head = (uint32_t)cfg->text.n_head;
    m->n_kv = (uint32_t)cfg->text.n_kv;
    m->d_head = (uint32_t)cfg->text.d_head;
    m->bytes_state = fv_recurrent_state_bytes(&cfg->text.recurrent) * m->n_layer;
    m->n_vocab = (uint32_t)e->n_vocab;
    FV_TRY(copy(a, weights_dtype(e), &m->dtype));
    FV_TRY(copy(a, fv_dtype_name(opt->kv_dtype), &m->kv_dtype));
    FV_TRY(describe_chat(e, opt, a, m));
    if (cfg->has_vision) {
        m->image_token = (uint32_t)cfg->image_token;
        if (fv_layout_reads_video(&cfg->layout)) m->video_token = (uint32_t)cfg->video_token;
        FV_TRY(fv_layout_to_message(&cfg->layout, a, &m->image_layout));
        m->n_image_tokens = (uint32_t)fv_layout_tokens_max(&cfg->layout, 1);
    }
    limits->max_positions = (uint32_t)cfg->text.max_position;
    limits->bytes_text = (uint64_t)fv_tokenizer_token_bytes(e->tok) * limits->max_positions;
    limits->max_tokens_default = FV_MAX_TOKENS_DEFAULT;
    m->limits = limits;
    FV_TRY(describe_calibration(e, opt->kv_dtype, a, m));
    *out = m;
    return FV_OK;
}

fv_status fv_info(const fv_engine *e, const fv_model_info_options *opt, fv_arena *a,
                  introduction_message **out) {
    fv_kv_shape shape = fv_engine_kv_shape(e, opt->kv_dtype);
    fv_compat_fields fields = {.model = e->fingerprint,
                               .n_layer = shape.n_layer,
                               .n_kv = shape.n_kv,
                               .d_head = shape.d_head,
                               .dtype = fv_dtype_name(shape.dtype),
                               .compute = fv_engine_sums(e),
                               .latent = shape.latent_sum};
    fv_compat compat;
    introduction_message *in;
    FV_TRY(fv_compat_make(&fields, &compat));
    FV_TRY(FV_ARENA_NEW(a, 1, in));
    fovea__fleet__v1__introduction__init(in);
    FV_TRY(copy(a, opt->name, &in->name));
    in->role = opt->role;
    FV_TRY(copy(a, opt->address, &in->address));
    FV_TRY(describe_model(e, opt, a, &in->model));
    in->compat_hash = compat.hash;
    FV_TRY(copy(a, compat.text, &in->compat));
    FV_TRY(copy(a, e->be.isa, &in->isa));
    *out = in;
    return FV_OK;
}
