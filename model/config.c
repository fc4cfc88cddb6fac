/* config.json -> fv_model_config.
 *
 * A config.json is a difference against the defaults of classes in transformers, so reading one
 * requires those defaults: they are here and in config_text.c, and were compared with
 * the classes of transformers 5 (the same as in 4 for every key that is read). Both spellings
 * of renamed keys are read.
 *
 * A key that would change the result and is not supported is refused by name;
 * unknown keys (training settings, cache hints) are ignored. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "model/config_internal.h"

enum { WHERE_MAX = 512, WIDTH_MAX = 1 << 17, FFN_MAX = 1 << 20, HEADS_MAX = 1024 };
enum { IMAGE_MAX = 8192 };

const json_t *fv_config_member(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

fv_status fv_config_activation(const json_t *obj, const char *key, const char *where,
                               fv_activation *out) {
    static const struct {
        const char *name;
        fv_activation act;
    } known[] = {
        {"silu", FV_ACT_SILU},
        {"swish", FV_ACT_SILU},
        {"gelu", FV_ACT_GELU},
        {"gelu_python", FV_ACT_GELU},
        {"gelu_pytorch_tanh", FV_ACT_GELU_TANH},
        {"gelu_new", FV_ACT_GELU_TANH},
        {"gelu_fast", FV_ACT_GELU_TANH},
        {"quick_gelu", FV_ACT_QUICK_GELU},
        {"relu", FV_ACT_RELU},
    };
    const char *name = NULL;
    FV_TRY(fv_json_str(obj, key, where, &name));
    if (!name) return FV_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        *out = known[i].act;
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key '%s' is '%s'; the engine has silu, gelu, gelu_pytorch_tanh, "
                   "quick_gelu and relu",
                   where, key, name);
}

static fv_status add_eos(const json_t *v, const char *where, fv_model_config *cfg) {
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return FV_FAIL(FV_EDATA, "%s: key 'eos_token_id' must be a token id or a list of them",
                       where);
    int32_t id = (int32_t)json_integer_value(v);
    for (int32_t i = 0; i < cfg->n_eos; i++)
        if (cfg->eos[i] == id) return FV_OK;
    if (cfg->n_eos == FV_MAX_EOS)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: more than %d different ids in 'eos_token_id'", where,
                       FV_MAX_EOS);
    cfg->eos[cfg->n_eos++] = id;
    return FV_OK;
}

fv_status fv_config_add_eos(const json_t *obj, const char *where, fv_model_config *cfg,
                            bool *found) {
    const json_t *v = fv_config_member(obj, "eos_token_id");
    if (!v) return FV_OK;
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            FV_TRY(add_eos(json_array_get(v, i), where, cfg));
        *found = *found || json_array_size(v) > 0;
        return FV_OK;
    }
    *found = true;
    return add_eos(v, where, cfg);
}

fv_status fv_config_refuse_quantized(const json_t *obj, const char *where) {
    const json_t *q = fv_config_member(obj, "quantization_config");
    if (!q) return FV_OK;
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'quantization_config' asks for %s weights; the engine reads F32, F16 "
                   "and BF16",
                   where, method ? method : "quantized");
}

/* image_size and patch_size: one number, or two equal ones. */
static fv_status read_side(const json_t *obj, const char *key, const char *where, int32_t *out) {
    const json_t *v = fv_config_member(obj, key);
    if (!json_is_array(v)) return fv_json_i32(obj, key, where, 1, IMAGE_MAX, out);
    const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be an integer or two of them", where, key);
    if (json_integer_value(a) != json_integer_value(b))
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key '%s' is not square", where, key);
    if (json_integer_value(a) < 1 || json_integer_value(a) > IMAGE_MAX)
        return FV_FAIL(FV_EDATA, "%s: key '%s' is %lld; it must be 1..%d", where, key,
                       (long long)json_integer_value(a), IMAGE_MAX);
    *out = (int32_t)json_integer_value(a);
    return FV_OK;
}

/* obj NULL: the tower that a LLaVA without vision_config has. */
static fv_status parse_vision(const json_t *obj, const char *where, fv_vision_config *v) {
    static const fv_vision_config clip = {.d_model = 768,
                                          .d_ffn = 3072,
                                          .n_layer = 12,
                                          .n_head = 12,
                                          .image = 224,
                                          .patch = 32,
                                          .ln_eps = 1e-5F,
                                          .act = FV_ACT_QUICK_GELU};
    static const fv_vision_config llava = {.d_model = 1024,
                                           .d_ffn = 4096,
                                           .n_layer = 24,
                                           .n_head = 16,
                                           .image = 336,
                                           .patch = 14,
                                           .ln_eps = 1e-5F,
                                           .act = FV_ACT_QUICK_GELU};
    *v = obj ? clip : llava;
    const char *type = "clip_vision_model";
    FV_TRY(fv_json_str(obj, "model_type", where, &type));
    if (strcmp(type, "clip_vision_model") != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'model_type' is '%s'; the engine has the tower clip_vision_model",
                       where, type);
    int32_t channels = 3;
    FV_TRY(fv_json_i32(obj, "hidden_size", where, 1, WIDTH_MAX, &v->d_model));
    FV_TRY(fv_json_i32(obj, "intermediate_size", where, 1, FFN_MAX, &v->d_ffn));
    FV_TRY(fv_json_i32(obj, "num_hidden_layers", where, 1, FV_MAX_LAYERS, &v->n_layer));
    FV_TRY(fv_json_i32(obj, "num_attention_heads", where, 1, HEADS_MAX, &v->n_head));
    FV_TRY(fv_json_i32(obj, "num_channels", where, 1, 1024, &channels));
    FV_TRY(read_side(obj, "image_size", where, &v->image));
    FV_TRY(read_side(obj, "patch_size", where, &v->patch));
    FV_TRY(fv_json_f32(obj, "layer_norm_eps", where, &v->ln_eps));
    FV_TRY(fv_config_activation(obj, "hidden_act", where, &v->act));
    if (channels != 3)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'num_channels' is %d; images have 3 channels",
                       where, channels);
    if (!(v->ln_eps >= 0 && v->ln_eps < 1))
        return FV_FAIL(FV_EDATA, "%s: key 'layer_norm_eps' must be in [0, 1)", where);
    if (v->d_model % v->n_head)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'hidden_size' (%d) is not a multiple of 'num_attention_heads' (%d)",
                       where, v->d_model, v->n_head);
    if (v->image % v->patch)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'image_size' (%d) is not a multiple of 'patch_size' (%d)", where,
                       v->image, v->patch);
    v->d_head = v->d_model / v->n_head;
    return FV_OK;
}

/* vision_feature_layer: one index into hidden_states, or a list of them. There are
 * n_layer + 1 states (the first is the input of layer 0); negative ones count from the end. */
static fv_status parse_feature_layers(const json_t *root, const char *where, fv_model_config *cfg) {
    const char *key = "vision_feature_layer";
    const json_t *v = fv_config_member(root, key);
    int32_t n_layer = cfg->vision.n_layer;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n < 1 || n > FV_MAX_FEATURE_LAYERS)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key '%s' lists %zu layers; 1..%d are possible", where,
                       key, n, FV_MAX_FEATURE_LAYERS);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        if (item && !json_is_integer(item))
            return FV_FAIL(FV_EDATA, "%s: key '%s' must be an integer or a list of them", where,
                           key);
        json_int_t at = item ? json_integer_value(item) : -2;
        if (at < -(json_int_t)n_layer - 1 || at > n_layer)
            return FV_FAIL(FV_EDATA,
                           "%s: key '%s' holds %lld; the tower of %d layers has %d hidden states",
                           where, key, (long long)at, n_layer, n_layer + 1);
        cfg->vision.feature_layer[i] = (int32_t)(at < 0 ? at + n_layer + 1 : at);
    }
    cfg->vision.n_feature_layer = (int32_t)n;
    return FV_OK;
}

/* image_token_index is the key of version 4, image_token_id its later name. */
static fv_status parse_image_token(const json_t *root, const char *where, fv_model_config *cfg) {
    int32_t index = -1, id = -1;
    FV_TRY(fv_json_i32(root, "image_token_index", where, 0, INT32_MAX, &index));
    FV_TRY(fv_json_i32(root, "image_token_id", where, 0, INT32_MAX, &id));
    if (index >= 0 && id >= 0 && index != id)
        return FV_FAIL(FV_EDATA, "%s: 'image_token_index' is %d but 'image_token_id' is %d", where,
                       index, id);
    cfg->image_token = id >= 0 ? id : index >= 0 ? index : 32000;
    if (cfg->image_token >= cfg->text.vocab)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'image_token_index' is %d, but the text model's 'vocab_size' is %d",
                       where, cfg->image_token, cfg->text.vocab);
    return FV_OK;
}

static fv_status parse_llava(const json_t *root, const char *where, fv_model_config *cfg,
                             int32_t *eos_default) {
    if (fv_config_member(root, "mm_vision_tower"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: this is the original LLaVA layout (key 'mm_vision_tower'); convert it "
                       "to the transformers layout first",
                       where);
    char text_where[WHERE_MAX], vision_where[WHERE_MAX];
    snprintf(text_where, sizeof text_where, "%s: text_config", where);
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    const json_t *text = fv_config_member(root, "text_config");
    const json_t *vision = fv_config_member(root, "vision_config");
    if ((text && !json_is_object(text)) || (vision && !json_is_object(vision)))
        return FV_FAIL(FV_EDATA, "%s: text_config and vision_config must be objects", where);

    const char *type = "llama";
    FV_TRY(fv_json_str(text, "model_type", text_where, &type));
    const char *family = fv_config_text_family(type);
    if (!family)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'model_type' is '%s'; the engine has llama, mistral and qwen2",
                       text_where, type);
    FV_TRY(fv_config_text_parse(text, family, text_where, &cfg->text, eos_default));
    FV_TRY(parse_vision(vision, vision_where, &cfg->vision));
    FV_TRY(parse_feature_layers(root, where, cfg));
    FV_TRY(parse_image_token(root, where, cfg));

    /* True at either level ties: composite configs inherit it from their text model. */
    FV_TRY(fv_json_bool(root, "tie_word_embeddings", where, &cfg->text.tied_head));
    bool text_tied = false;
    FV_TRY(fv_json_bool(text, "tie_word_embeddings", text_where, &text_tied));
    cfg->text.tied_head = cfg->text.tied_head || text_tied;

    const char *strategy = "default";
    FV_TRY(fv_json_str(root, "vision_feature_select_strategy", where, &strategy));
    if (strcmp(strategy, "default") != 0 && strcmp(strategy, "full") != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'vision_feature_select_strategy' is '%s'; 'default' and 'full' are "
                       "possible",
                       where, strategy);
    cfg->vision.keep_cls = !strcmp(strategy, "full");
    cfg->vision.projector_act = FV_ACT_GELU;
    cfg->vision.projector_bias = true;
    FV_TRY(fv_config_activation(root, "projector_hidden_act", where, &cfg->vision.projector_act));
    FV_TRY(fv_json_bool(root, "multimodal_projector_bias", where, &cfg->vision.projector_bias));

    bool named = false;
    FV_TRY(fv_config_add_eos(root, where, cfg, &named));
    FV_TRY(fv_config_add_eos(text, text_where, cfg, &named));
    cfg->eos_is_default = !named;
    cfg->has_vision = true;
    cfg->vision.d_text = cfg->text.d_model;
    strcpy(cfg->family, "llava");
    return FV_OK;
}

static fv_status parse_text_only(const json_t *root, const char *family, const char *where,
                                 fv_model_config *cfg, int32_t *eos_default) {
    FV_TRY(fv_config_text_parse(root, family, where, &cfg->text, eos_default));
    bool named = false;
    FV_TRY(fv_config_add_eos(root, where, cfg, &named));
    cfg->eos_is_default = !named;
    cfg->image_token = -1;
    strcpy(cfg->family, "text");
    return FV_OK;
}

static fv_status parse_root(const json_t *root, const char *where, fv_model_config *cfg) {
    FV_TRY(fv_config_refuse_quantized(root, where));
    const char *type = NULL;
    FV_TRY(fv_json_str(root, "model_type", where, &type));
    if (!type) /* some hand-written files name the class only */
        type = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    if (!type) return FV_FAIL(FV_EDATA, "%s: 'model_type' and 'architectures' are missing", where);
    int32_t eos_default = -1;
    const char *family = fv_config_text_family(type);
    if (!strcmp(type, "llava") || !strcmp(type, "LlavaForConditionalGeneration"))
        FV_TRY(parse_llava(root, where, cfg, &eos_default));
    else if (family)
        FV_TRY(parse_text_only(root, family, where, cfg, &eos_default));
    else
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'model_type' is '%s'; the engine has llava, llama, mistral and "
                       "qwen2",
                       where, type);
    if (cfg->eos_is_default && eos_default >= 0) cfg->eos[cfg->n_eos++] = eos_default;
    cfg->n_vocab_used = cfg->text.vocab;
    return FV_OK;
}

fv_status fv_config_parse(const char *json, size_t n, const char *where, fv_model_config *out) {
    json_t *root = NULL;
    FV_TRY(fv_json_object(json, n, where, &root));
    fv_model_config cfg = {0};
    fv_status st = parse_root(root, where, &cfg);
    json_decref(root);
    if (st == FV_OK) *out = cfg;
    return st;
}
