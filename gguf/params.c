/* config.json, preprocessor_config.json and a chat template of Mistral's params.json, as transformers' converters
 * make them. What changes the network and is not known is refused by name. Any thread. */
#include "gguf/params.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/internal.h"

enum { PARAMS_MAX = 1 << 20, TEKKEN_MAX = 256 << 20, PATH_CAP = 4096 };

/* A key of params.json and that of config.json. */
typedef struct key {
    const char *own, *hub;
    bool required;
} key;

static const key text_keys[] = {
    {"dim", "hidden_size", true},
    {"n_layers", "num_hidden_layers", true},
    {"hidden_dim", "intermediate_size", true},
    {"n_heads", "num_attention_heads", true},
    {"n_kv_heads", "num_key_value_heads", true},
    {"norm_eps", "rms_norm_eps", true},
    {"vocab_size", "vocab_size", true},
    {"head_dim", "head_dim", false},
    {"rope_theta", "rope_theta", false},
    {"max_seq_len", "max_position_embeddings", false},
    {"max_position_embeddings", "max_position_embeddings", false},
    {"tied_embeddings", "tie_word_embeddings", false},
};
static const key tower_keys[] = {
    {"hidden_size", "hidden_size", true},
    {"intermediate_size", "intermediate_size", true},
    {"num_hidden_layers", "num_hidden_layers", true},
    {"num_attention_heads", "num_attention_heads", true},
    {"num_channels", "num_channels", false},
    {"image_size", "image_size", true},
    {"patch_size", "patch_size", true},
    {"rope_theta", "rope_theta", false},
    {"head_dim", "head_dim", false},
};

/* Keys that are read besides those, or that say nothing about the network. */
static const char *const text_known[] = {
    "vision_encoder",   "sliding_window", "yarn",       "llama_4_scaling",
    "model_type",       "dtype",          "activation", "model_parallel",
    "ragged_attention", "max_batch_size", NULL};
static const char *const tower_known[] = {"adapter_bias",
                                          "mm_projector_id",
                                          "spatial_merge_size",
                                          "add_pre_mm_projector_layer_norm",
                                          "image_token_id",
                                          "image_break_token_id",
                                          "image_end_token_id",
                                          "max_image_size",
                                          NULL};
static const char *const yarn_known[] = {
    "factor", "original_max_position_embeddings", "beta", "alpha", "apply_scale", NULL};
static const char *const scaling_known[] = {"beta", "original_max_position_embeddings", NULL};

typedef struct maker {
    fv_gguf_json m;
    const char *where;
    const json_t *params, *tower; /* tower NULL: a text model */
} maker;

static bool is_off(const json_t *v) { return !v || json_is_null(v) || json_is_false(v); }

static bool is_among(const char *name, const char *const *names) {
    for (; names && *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

static fv_status check_keys(const maker *k, const json_t *object, const key *keys, size_t n,
                            const char *const *known) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, name, v) {
        bool read = is_off(v) || is_among(name, known);
        for (size_t i = 0; i < n && !read; i++) read = !strcmp(name, keys[i].own);
        if (!read)
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: key '%.80s' is not read from Mistral's own layout: take the model "
                           "with config.json",
                           k->where, name);
    }
    return FV_OK;
}

static fv_status take_keys(maker *k, const json_t *from, const key *keys, size_t n, json_t *to) {
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_object_get(from, keys[i].own);
        if (v && !json_is_null(v)) fv_gguf_put(&k->m, to, keys[i].hub, json_incref(v));
        if (keys[i].required && !json_is_number(v))
            return FV_FAIL(FV_EDATA, "%s: key '%s' is missing, or no number", k->where,
                           keys[i].own);
    }
    return FV_OK;
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void put_number(maker *k, json_t *to, const char *hub, const json_t *from, const char *own) {
    json_t *v = json_object_get(from, own);
    if (json_is_number(v)) fv_gguf_put(&k->m, to, hub, json_incref(v));
}

/* RoPE of Ministral 3. */
static fv_status add_yarn(maker *k, const json_t *yarn, json_t *text) {
    const json_t *scaling = json_object_get(k->params, "llama_4_scaling");
    FV_TRY(check_keys(k, yarn, NULL, 0, yarn_known));
    json_t *rope = json_object();
    fv_gguf_put(&k->m, text, "rope_parameters", rope);
    fv_gguf_put(&k->m, rope, "rope_type", json_string("yarn"));
    put_number(k, rope, "rope_theta", k->params, "rope_theta");
    put_number(k, rope, "factor", yarn, "factor");
    put_number(k, rope, "original_max_position_embeddings", yarn,
               "original_max_position_embeddings");
    put_number(k, rope, "beta_fast", yarn, "beta");
    put_number(k, rope, "beta_slow", yarn, "alpha");
    fv_gguf_put(&k->m, rope, "mscale", json_real(1));
    fv_gguf_put(&k->m, rope, "mscale_all_dim", json_real(1));
    fv_gguf_put(&k->m, text, "model_type", json_string("ministral3"));
    if (is_off(scaling))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'yarn' without 'llama_4_scaling' is not read from Mistral's own "
                       "layout: take the model with config.json",
                       k->where);
    put_number(k, rope, "llama_4_scaling_beta", scaling, "beta");
    return check_keys(k, scaling, NULL, 0, scaling_known);
}

static fv_status make_text_config(maker *k, json_t *text) {
    const json_t *window = json_object_get(k->params, "sliding_window");
    const json_t *yarn = json_object_get(k->params, "yarn");
    const char *type = json_string_value(json_object_get(k->params, "model_type"));
    const char *act = json_string_value(json_object_get(k->params, "activation"));
    FV_TRY(check_keys(k, k->params, text_keys, COUNT(text_keys), text_known));
    if (type && strcmp(type, "transformer") != 0)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'model_type' is '%.40s', not 'transformer'",
                       k->where, type);
    fv_gguf_put(&k->m, text, "model_type", json_string("mistral"));
    fv_gguf_put(&k->m, text, "hidden_act", json_string(act ? act : "silu"));
    fv_gguf_put(&k->m, text, "tie_word_embeddings", json_false());
    fv_gguf_put(&k->m, text, "max_position_embeddings", json_integer(131072));
    fv_gguf_put(&k->m, text, "bos_token_id", json_integer(1));
    fv_gguf_put(&k->m, text, "eos_token_id", json_integer(2));
    /* Old files have it as text. */
    json_int_t n = json_is_string(window) ? strtoll(json_string_value(window), NULL, 10)
                                          : json_integer_value(window);
    fv_gguf_put(&k->m, text, "sliding_window", n > 0 ? json_integer(n) : json_null());
    if (!is_off(window) && n <= 0)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'sliding_window' must be one positive number",
                       k->where);
    FV_TRY(take_keys(k, k->params, text_keys, COUNT(text_keys), text));
    return is_off(yarn) ? FV_OK : add_yarn(k, yarn, text);
}

static fv_status make_tower_config(maker *k, json_t *root, json_t *text) {
    const char *projector = json_string_value(json_object_get(k->tower, "mm_projector_id"));
    const bool merges = projector && !strcmp(projector, "patch_merge");
    json_t *vision = json_object();
    fv_gguf_put(&k->m, root, "vision_config", vision);
    FV_TRY(check_keys(k, k->tower, tower_keys, COUNT(tower_keys), tower_known));
    if (projector && *projector && !merges)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'mm_projector_id' is '%.40s'; patch_merge is read",
                       k->where, projector);
    FV_TRY(take_keys(k, k->tower, tower_keys, COUNT(tower_keys), vision));
    fv_gguf_put(&k->m, vision, "model_type", json_string("pixtral"));
    fv_gguf_put(&k->m, vision, "hidden_act", json_string("silu"));
    fv_gguf_put(&k->m, root, "model_type", json_string(merges ? "mistral3" : "llava"));
    fv_gguf_put(&k->m, root, "image_token_index", json_integer(10));
    put_number(k, root, "image_token_index", k->tower, "image_token_id");
    fv_gguf_put(&k->m, root, "vision_feature_layer", json_integer(-1));
    fv_gguf_put(&k->m, root, "vision_feature_select_strategy", json_string("full"));
    fv_gguf_put(&k->m, root, "projector_hidden_act", json_string("gelu"));
    fv_gguf_put(&k->m, root, "multimodal_projector_bias",
                json_boolean(json_is_true(json_object_get(k->tower, "adapter_bias"))));
    if (merges) put_number(k, root, "spatial_merge_size", k->tower, "spatial_merge_size");
    fv_gguf_put(&k->m, root, "tie_word_embeddings",
                json_incref(json_object_get(text, "tie_word_embeddings")));
    return FV_OK;
}

static fv_status make_config(maker *k) {
    json_t *text = k->tower ? json_object() : k->m.root;
    if (k->tower) fv_gguf_put(&k->m, k->m.root, "text_config", text);
    FV_TRY(make_text_config(k, text));
    return k->tower ? make_tower_config(k, k->m.root, text) : FV_OK;
}

static fv_status make_processor(maker *k) {
    static const double mean[] = {0.48145466, 0.4578275, 0.40821073};
    static const double std[] = {0.26862954, 0.26130258, 0.27577711};
    const bool larger = json_is_number(json_object_get(k->tower, "max_image_size"));
    if (!k->tower) return FV_OK;
    json_t *size = json_object(), *means = json_array(), *stds = json_array();
    for (int c = 0; c < 3; c++) {
        fv_gguf_append(&k->m, means, json_real(mean[c]));
        fv_gguf_append(&k->m, stds, json_real(std[c]));
    }
    put_number(k, size, "longest_edge", k->tower, larger ? "max_image_size" : "image_size");
    fv_gguf_put(&k->m, k->m.root, "image_processor_type", json_string("PixtralImageProcessor"));
    fv_gguf_put(&k->m, k->m.root, "size", size);
    fv_gguf_put(&k->m, k->m.root, "image_mean", means);
    fv_gguf_put(&k->m, k->m.root, "image_std", stds);
    put_number(k, k->m.root, "patch_size", k->tower, "patch_size");
    return FV_OK;
}

static fv_status parse(const char *path, const char *text, size_t n, json_t **out) {
    json_error_t e;
    *out = json_loadb(text, n, 0, &e);
    if (*out && json_is_object(*out)) return FV_OK;
    json_decref(*out);
    return FV_FAIL(FV_EDATA, "%s is no JSON object: download the file again", path);
}

static fv_status make_json(const char *path, const char *params, size_t n, bool config,
                           char **text) {
    json_t *root;
    FV_TRY(parse(path, params, n, &root));
    maker k = {.m = {.root = json_object()}, .where = path, .params = root};
    k.tower = json_object_get(root, "vision_encoder");
    if (is_off(k.tower)) k.tower = NULL;
    fv_status st = config ? make_config(&k) : make_processor(&k);
    const bool made = json_object_size(k.m.root) > 0;
    if (st == FV_OK && (k.m.lost || (made && !(*text = json_dumps(k.m.root, JSON_COMPACT)))))
        st = FV_FAIL(FV_ENOMEM, "%s: out of memory", path);
    json_decref(k.m.root);
    json_decref(root);
    return st;
}

/* ---- the chat template ------------------------------------------------------------------------ */

#define PARTS                                                                                      \
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"                      \
    "{% for part in message['content'] %}"                                                         \
    "{{ '[IMG]' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endif %}"
#define ANSWER "{% elif message['role'] == 'assistant' %}" PARTS "{{ '</s>' }}"
#define REFUSE                                                                                     \
    "{% else %}{{ raise_exception('there are system, user and assistant turns, not ' ~ "           \
    "message['role']) }}{% endif %}{% endfor %}"

/* Instructions have tokens of their own; */
static const char with_system[] =
    "{{ '<s>' }}{% for message in messages %}"
    "{% if message['role'] in ['system', 'developer'] %}{{ '[SYSTEM_PROMPT]' }}" PARTS
    "{{ '[/SYSTEM_PROMPT]' }}"
    "{% elif message['role'] == 'user' %}{{ '[INST]' }}" PARTS "{{ '[/INST]' }}" ANSWER REFUSE;

/* in older vocabularies they stand before the last question. */
static const char without_system[] =
    "{{ '<s>' }}{% for message in messages %}"
    "{% if message['role'] in ['system', 'developer'] %}"
    "{% elif message['role'] == 'user' %}{{ '[INST]' }}"
    "{% if loop.last %}{% for said in messages if said['role'] in ['system', 'developer'] %}"
    "{{ (said['content'] if said['content'] is string else said['content'] | map(attribute='text') "
    "| join('')) ~ '\\n\\n' }}{% endfor %}{% endif %}" PARTS "{{ '[/INST]' }}" ANSWER REFUSE;

/* Whether a file of transformers can have a template. */
static bool has_template(const char *dir) {
    static const char *const names[] = {"tokenizer_config.json", "chat_template.json",
                                        "processor_config.json", "chat_templates",
                                        "additional_chat_templates"};
    char path[PATH_CAP];
    for (size_t i = 0; i < COUNT(names); i++)
        if (fv_path_join(dir, names[i], path, sizeof path) == FV_OK && fv_file_exists(path))
            return true;
    return false;
}

static fv_status make_template(const char *dir, char **text) {
    char path[PATH_CAP], *tekken;
    size_t n;
    FV_TRY(fv_path_join(dir, "tekken.json", path, sizeof path));
    if (!fv_file_exists(path) || has_template(dir)) return FV_OK;
    FV_TRY(fv_file_read(path, TEKKEN_MAX, &tekken, &n));
    *text = strdup(memmem(tekken, n, "\"[SYSTEM_PROMPT]\"", 17) ? with_system : without_system);
    free(tekken);
    return *text ? FV_OK : FV_FAIL(FV_ENOMEM, "%s: out of memory", path);
}

fv_status fv_params_make_text(const char *dir, const char *name, char **text) {
    char path[PATH_CAP], *params;
    size_t n;
    *text = NULL;
    const bool config = !strcmp(name, "config.json");
    const bool chat = !strcmp(name, "chat_template.jinja");
    if (!config && !chat && strcmp(name, "preprocessor_config.json") != 0) return FV_OK;
    FV_TRY(fv_path_join(dir, "config.json", path, sizeof path));
    if (fv_file_exists(path)) return FV_OK;
    FV_TRY(fv_path_join(dir, "params.json", path, sizeof path));
    if (!fv_file_exists(path)) return FV_OK;
    if (chat) return make_template(dir, text);
    FV_TRY(fv_file_read(path, PARAMS_MAX, &params, &n));
    fv_status st = make_json(path, params, n, config, text);
    free(params);
    return st;
}
