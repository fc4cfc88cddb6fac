/* The configuration files of a synthetic checkpoint.
 *
 * Shapes are a table; a given config.json can replace a row of it. Whatever the
 * source, the result goes through fv_config_parse before it is used, so that what is written
 * can be read. */
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "model/families/keys.h"
#include "model/synth/internal.h"

enum { CONFIG_MAX = 1 << 20, BOS = 1, EOS = 2 };

typedef struct shape {
    const char *name;
    int32_t vocab, image_token, d_model, d_ffn, n_layer, n_head, n_kv, d_head, max_position;
    int32_t vision_d, vision_ffn, vision_layer, vision_head, image, patch;
} shape;

static const shape shapes[] = {
    {"llava-1.5-7b", 32064, 32000, 4096, 11008, 32, 32, 32, 128, 4096, 1024, 4096, 24, 16, 336, 14},
    {"llava-1.5-13b", 32064, 32000, 5120, 13824, 40, 40, 40, 128, 4096, 1024, 4096, 24, 16, 336,
     14},
    {"small", 32064, 32000, 1024, 2752, 32, 8, 8, 128, 4096, 512, 2048, 8, 8, 336, 14},
    {"nano", 2048, 2000, 256, 640, 12, 8, 8, 32, 4096, 192, 768, 6, 6, 168, 14},
    {"tiny", 512, 480, 64, 160, 3, 4, 4, 16, 1024, 32, 64, 3, 2, 56, 14},
    /* heads * head_dim differs from hidden_size, as it may */
    {"tiny-gqa", 512, 480, 64, 160, 2, 4, 2, 32, 1024, 32, 64, 3, 2, 56, 14},
};
enum { N_SHAPE = sizeof shapes / sizeof *shapes };

static const shape *find_shape(const char *name) {
    for (int i = 0; i < N_SHAPE; i++)
        if (!strcmp(name, shapes[i].name)) return &shapes[i];
    return NULL;
}

static json_t *text_json(const shape *s, const char *family, bool v5) {
    json_t *t = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:i, s:b}", "model_type", family,
        "vocab_size", s->vocab, "hidden_size", s->d_model, "intermediate_size", s->d_ffn,
        "num_hidden_layers", s->n_layer, "num_attention_heads", s->n_head, "num_key_value_heads",
        s->n_kv, "head_dim", s->d_head, "max_position_embeddings", s->max_position, "rms_norm_eps",
        1e-5, "hidden_act", "silu", "eos_token_id", EOS, "tie_word_embeddings", 0);
    if (!t) return NULL;
    /* Qwen2 starts a text with no token of its own. */
    json_object_set_new(t, "bos_token_id",
                        strcmp(family, "qwen2") ? json_integer(BOS) : json_null());
    if (!strcmp(family, "mistral")) json_object_set_new(t, "sliding_window", json_null());
    if (v5)
        json_object_set_new(t, "rope_parameters",
                            json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", 10000.0));
    else
        json_object_set_new(t, "rope_theta", json_real(10000.0));
    return t;
}

static json_t *vision_json(const shape *s) {
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:i}", "model_type",
                     "clip_vision_model", "hidden_size", s->vision_d, "intermediate_size",
                     s->vision_ffn, "num_hidden_layers", s->vision_layer, "num_attention_heads",
                     s->vision_head, "image_size", s->image, "patch_size", s->patch, "hidden_act",
                     "quick_gelu", "layer_norm_eps", 1e-5, "projection_dim", s->vision_d);
}

static json_t *llava_json(const shape *s, const char *family, bool v5) {
    int32_t side = s->image / s->patch;
    json_t *text = text_json(s, family, v5), *vision = vision_json(s);
    return json_pack("{s:[s], s:s, s:o, s:o, s:i, s:i, s:s, s:s, s:i, s:b, s:b}", "architectures",
                     "LlavaForConditionalGeneration", "model_type", "llava", "text_config", text,
                     "vision_config", vision, "image_token_index", s->image_token,
                     "image_seq_length", side * side, "projector_hidden_act", "gelu",
                     "vision_feature_select_strategy", "default", "vision_feature_layer", -2,
                     "multimodal_projector_bias", 1, "tie_word_embeddings", 0);
}

static fv_status config_from_file(const char *path, json_t **out) {
    char *text = NULL;
    size_t bytes = 0;
    FV_TRY(fv_file_read(path, CONFIG_MAX, &text, &bytes));
    fv_status st = fv_json_object(text, bytes, path, out);
    free(text);
    return st;
}

static fv_status config_from_shape(const fv_synth_options *opt, json_t **out) {
    const shape *s = opt->shape ? find_shape(opt->shape) : NULL;
    if (!s)
        return FV_FAIL(FV_EINVAL, "shape '%s' is unknown: %s exist", opt->shape ? opt->shape : "",
                       "llava-1.5-7b, llava-1.5-13b, small, nano, tiny, tiny-gqa");
    const char *family = opt->text_family ? opt->text_family : "llama";
    if (strcmp(family, "llama") != 0 && strcmp(family, "mistral") != 0 &&
        strcmp(family, "qwen2") != 0)
        return FV_FAIL(FV_EINVAL, "text family '%s' is unknown: llama, mistral and qwen2 exist",
                       family);
    *out = llava_json(s, family, opt->config_v5);
    return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "no memory for config.json");
}

/* The object in `json` that holds the keys of one half; NULL when that half is left to its
 * defaults or does not exist. */
static json_t *half_of(json_t *json, const char *part) {
    json_t *half = json_object_get(json, part);
    if (json_is_object(half)) return half;
    const char *type = json_string_value(json_object_get(json, "model_type"));
    bool text_only = !type || fv_config_text_family(type);
    return text_only && !strcmp(part, "text_config") ? json : NULL;
}

static fv_status set_layers(json_t *json, const char *part, int32_t n) {
    if (n == 0) return FV_OK;
    json_t *half = half_of(json, part);
    if (!half) return FV_FAIL(FV_EINVAL, "the config file has no %s to set layers in", part);
    json_object_set_new(half, "num_hidden_layers", json_integer(n));
    return FV_OK;
}

/* What the options change in a config of either source. */
static fv_status apply_options(const fv_synth_options *opt, json_t *json) {
    static const char *const dtypes[] = {
        [FV_F32] = "float32", [FV_BF16] = "bfloat16", [FV_F16] = "float16"};
    FV_TRY(set_layers(json, "text_config", opt->n_layer));
    FV_TRY(set_layers(json, "vision_config", opt->n_vision_layer));
    if (opt->name_mapping == FV_NAME_MAPPING_BASE || opt->name_mapping == FV_NAME_MAPPING_BARE)
        json_object_set_new(json, "tie_word_embeddings", json_true());
    json_object_del(json, "torch_dtype");
    json_object_del(json, "dtype");
    json_object_set_new(json, opt->config_v5 ? "dtype" : "torch_dtype",
                        json_string(dtypes[opt->dtype]));
    return FV_OK;
}

static fv_status parse_back(const json_t *json, const char *where, fv_model_config *cfg) {
    char *text = json_dumps(json, 0);
    if (!text) return FV_FAIL(FV_ENOMEM, "no memory for config.json");
    fv_status st = fv_config_parse(text, strlen(text), where, cfg);
    free(text);
    return st;
}

static fv_status check_vocab(const fv_model_config *cfg) {
    int32_t room = cfg->has_vision ? cfg->image_token : cfg->text.vocab;
    if (room > FV_SYNTH_RESERVED_IDS) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "%s is %d: a synthetic tokenizer needs %d ids before it for its special and "
                   "byte tokens",
                   cfg->has_vision ? "image_token_index" : "vocab_size", room,
                   FV_SYNTH_RESERVED_IDS + 1);
}

fv_status fv_synth_config_make(const fv_synth_options *opt, json_t **json, fv_model_config *cfg) {
    if (!opt->shape == !opt->config_file)
        return FV_FAIL(FV_EINVAL, "either a shape or a config file must be given");
    if (opt->config_file && opt->text_family)
        return FV_FAIL(FV_EINVAL, "the text family comes from the config file: remove it");
    json_t *made = NULL;
    if (opt->config_file)
        FV_TRY(config_from_file(opt->config_file, &made));
    else
        FV_TRY(config_from_shape(opt, &made));
    fv_status st = apply_options(opt, made);
    if (st == FV_OK) st = parse_back(made, opt->config_file ? opt->config_file : opt->shape, cfg);
    if (st == FV_OK) st = check_vocab(cfg);
    if (st == FV_OK)
        *json = made;
    else
        json_decref(made);
    return st;
}

int32_t fv_synth_pad_id(const fv_model_config *cfg) {
    return cfg->has_vision && cfg->image_token + 1 < cfg->text.vocab ? cfg->image_token + 1 : -1;
}

static json_t *image_processor_json(const fv_model_config *cfg) {
    int32_t side = cfg->vision.image;
    return json_pack("{s:s, s:b, s:b, s:b, s:b, s:b, s:{s:i}, s:{s:i, s:i}, s:i, s:f, s:[f,f,f], "
                     "s:[f,f,f]}",
                     "image_processor_type", "CLIPImageProcessor", "do_resize", 1, "do_center_crop",
                     1, "do_rescale", 1, "do_normalize", 1, "do_convert_rgb", 1, "size",
                     "shortest_edge", side, "crop_size", "height", side, "width", side, "resample",
                     3, "rescale_factor", 0.00392156862745098, "image_mean", 0.48145466, 0.4578275,
                     0.40821073, "image_std", 0.26862954, 0.26130258, 0.27577711);
}

fv_status fv_synth_write_side_configs(const fv_synth_options *opt, const fv_model_config *cfg) {
    json_t *eos = json_array();
    for (int32_t i = 0; i < cfg->n_eos; i++) json_array_append_new(eos, json_integer(cfg->eos[i]));
    if (cfg->n_eos == 0) json_array_append_new(eos, json_integer(EOS));
    json_t *gen = json_pack("{s:o}", "eos_token_id", eos);
    if (cfg->text.bos >= 0) json_object_set_new(gen, "bos_token_id", json_integer(cfg->text.bos));
    int32_t pad = fv_synth_pad_id(cfg);
    if (pad >= 0) json_object_set_new(gen, "pad_token_id", json_integer(pad));
    FV_TRY(fv_synth_write_json(opt->dir, "generation_config.json", gen));
    if (!cfg->has_vision) return FV_OK;

    json_t *processor =
        json_pack("{s:s, s:s, s:i, s:i, s:s}", "processor_class", "LlavaProcessor", "image_token",
                  "<image>", "patch_size", cfg->vision.patch, "num_additional_image_tokens", 1,
                  "vision_feature_select_strategy", cfg->vision.keep_cls ? "full" : "default");
    if (opt->config_v5)
        json_object_set_new(processor, "image_processor", image_processor_json(cfg));
    FV_TRY(fv_synth_write_json(opt->dir, "processor_config.json", processor));
    if (opt->config_v5) return FV_OK;
    json_t *image = image_processor_json(cfg);
    json_object_set_new(image, "processor_class", json_string("LlavaProcessor"));
    return fv_synth_write_json(opt->dir, "preprocessor_config.json", image);
}
