/* Parses a vision_config into the tower's shapes. Each type of tower is a row with its class's
 * defaults. */
#include <string.h>

#include "model/families/keys.h"

enum { IMAGE_MAX = 8192 };

#define QWEN_VL_TOWER                                                                              \
    .n_head = 16, .image = IMAGE_MAX, .ln_eps = 1e-6F, .bias_qkv = true, .bias_o = true,           \
    .bias_mlp = true, .fused_qkv = true, .two_frames = true, .any_size = true,                     \
    .rope = FV_TOWER_ROPE_HALVES, .rope_theta = 10000

#define GLM_TOWER                                                                                  \
    .n_layer = 24, .image = 336, .patch = 14, .ln_eps = 1e-5F, .act = FV_ACT_SILU,                 \
    .patch_bias = true, .rms_norm = true, .gated = true, .fused_qkv = true, .two_frames = true,    \
    .any_size = true, .post_norm = true, .post_norm_rms = true, .rope = FV_TOWER_ROPE_HALVES,      \
    .rope_theta = 10000
#define GLM_4_TOWER                                                                                \
    GLM_TOWER, .d_model = 1536, .d_ffn = 13696, .n_head = 12, .pre_norm = true,                    \
               .norm_patches = true, .position_cubic = true

static const struct {
    const char *type;
    fv_vision_config config;
} towers[] = {
    {"clip_vision_model",
     {.bias_qkv = true,
      .bias_o = true,
      .bias_mlp = true,
      .d_model = 768,
      .d_ffn = 3072,
      .n_layer = 12,
      .n_head = 12,
      .image = 224,
      .patch = 32,
      .ln_eps = 1e-5F,
      .act = FV_ACT_QUICK_GELU,
      .class_token = true,
      .pre_norm = true}},
    {"siglip_vision_model",
     {.bias_qkv = true,
      .bias_o = true,
      .bias_mlp = true,
      .d_model = 768,
      .d_ffn = 3072,
      .n_layer = 12,
      .n_head = 12,
      .image = 224,
      .patch = 16,
      .ln_eps = 1e-6F,
      .act = FV_ACT_GELU_TANH,
      .patch_bias = true}},
    /* smolvlm uses this, too */
    {"idefics3_vision",
     {.bias_qkv = true,
      .bias_o = true,
      .bias_mlp = true,
      .d_model = 1152,
      .d_ffn = 3072,
      .n_layer = 12,
      .n_head = 16,
      .image = 224,
      .patch = 32,
      .ln_eps = 1e-6F,
      .act = FV_ACT_GELU_TANH,
      .patch_bias = true,
      .bucket_position = true,
      .post_norm = true}},
    {"internvl_vision",
     {.d_model = 1024,
      .d_ffn = 4096,
      .n_layer = 24,
      .n_head = 16,
      .image = 448,
      .patch = 14,
      .ln_eps = 1e-6F,
      .act = FV_ACT_GELU,
      .class_token = true,
      .patch_bias = true,
      .bias_o = true,
      .bias_mlp = true,
      .layer_scale = true}},
    {"intern_vit_6b",
     {.d_model = 3200,
      .d_ffn = 12800,
      .n_layer = 48,
      .n_head = 25,
      .image = 224,
      .patch = 14,
      .ln_eps = 1e-6F,
      .act = FV_ACT_GELU,
      .class_token = true,
      .patch_bias = true,
      .rms_norm = true,
      .qk_norm = true,
      .fused_qkv = true,
      .bias_o = true,
      .bias_mlp = true,
      .layer_scale = true}},
    {"pixtral",
     {.d_model = 1024,
      .d_ffn = 4096,
      .n_layer = 24,
      .n_head = 16,
      .image = 1024,
      .patch = 16,
      .ln_eps = 1e-5F,
      .act = FV_ACT_GELU,
      .pre_norm = true,
      .rms_norm = true,
      .gated = true,
      .any_size = true,
      .rope = FV_TOWER_ROPE_AXIAL,
      .rope_theta = 10000}},
    {"qwen2_vl_vision",
     {QWEN_VL_TOWER, .n_layer = 32, .patch = 14, .d_model = 1280, .act = FV_ACT_QUICK_GELU}},
    {"qwen2_5_vl_vision",
     {QWEN_VL_TOWER, .n_layer = 32, .patch = 14, .d_model = 3584, .d_ffn = 3420, .act = FV_ACT_SILU,
      .rms_norm = true, .gated = true}},
    {"qwen3_vl_vision",
     {QWEN_VL_TOWER, .n_layer = 27, .patch = 16, .d_model = 1152, .d_ffn = 4304,
      .act = FV_ACT_GELU_TANH, .patch_bias = true}},
    {"gemma4_vision",
     {.n_head = 12,
      .image = IMAGE_MAX,
      .ln_eps = 1e-6F,
      .n_layer = 16,
      .patch = 16,
      .d_model = 768,
      .d_ffn = 3072,
      .act = FV_ACT_GELU_TANH,
      .rms_norm = true,
      .gated = true,
      .any_size = true,
      .rope = FV_TOWER_ROPE_HALVES,
      .rope_theta = 100}},
    {"gemma4_unified_vision", /* a matrix, and no layer */
     {.n_head = 1,
      .image = IMAGE_MAX,
      .ln_eps = 1e-5F,
      .patch = 16,
      .d_model = 3840,
      .d_ffn = 1,
      .any_size = true}},
    {"qwen3_5_vision",
     {QWEN_VL_TOWER, .n_layer = 27, .patch = 16, .d_model = 1152, .d_ffn = 4304,
      .act = FV_ACT_GELU_TANH, .patch_bias = true}},
    {"paddleocr_vl_vision",
     {.bias_qkv = true,
      .bias_o = true,
      .bias_mlp = true,
      .d_model = 1152,
      .d_ffn = 4304,
      .n_layer = 27,
      .n_head = 16,
      .image = 384,
      .patch = 14,
      .ln_eps = 1e-6F,
      .act = FV_ACT_GELU_TANH,
      .patch_bias = true,
      .post_norm = true,
      .any_size = true,
      .position_middle = true,
      .rope = FV_TOWER_ROPE_HALVES,
      .rope_theta = 10000}},
    {"glm4v_vision", {GLM_4_TOWER}},
    {"glm4v_moe_vision", {GLM_4_TOWER}},
    {"glm_ocr_vision",
     {GLM_TOWER, .d_model = 1024, .d_ffn = 4096, .n_head = 16, .bias_qkv = true, .bias_o = true,
      .bias_mlp = true, .qk_norm_heads = true}},
};
enum {
    N_TOWER = sizeof towers / sizeof *towers,
    N_SHARED = 2 /* the first, for LLaVA's families */
};

/* Reads image_size or patch_size: one number, or two equal ones. */
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

static fv_status tower_of(const json_t *obj, const fv_family *family, const char *where,
                          fv_vision_config *v) {
    const char *type = family->tower;
    bool shared = !strcmp(type, towers[0].type) || !strcmp(type, towers[1].type);
    if (!family->own_tower) FV_TRY(fv_json_str(obj, "model_type", where, &type));
    for (int i = shared ? 0 : N_SHARED; i < (shared ? N_SHARED : N_TOWER); i++) {
        if (strcmp(type, towers[i].type) != 0) continue;
        const fv_vision_config *row = &towers[i].config, *bare = &family->vision;
        *v = *row;
        if (obj || !bare->d_model) return FV_OK;
        v->d_model = bare->d_model, v->d_ffn = bare->d_ffn;
        v->n_layer = bare->n_layer, v->n_head = bare->n_head;
        v->image = bare->image, v->patch = bare->patch;
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED, "%s: unsupported model_type '%s'; supported: the tower%s",
                   where, type,
                   shared ? "s clip_vision_model and siglip_vision_model"
                          : " of the family's own class alone");
}

/* A LLaVA-OneVision without vision_config has a SigLIP tower without the pooling head; other SigLIP
 * towers have one in their files. */
static fv_status parse_pooling(const json_t *obj, const char *where, const fv_vision_config *v,
                               bool *head) {
    *head = obj && v->patch_bias && !v->post_norm && !v->class_token && !v->any_size;
    return *head ? fv_json_bool(obj, "vision_use_head", where, head) : FV_OK;
}

fv_status fv_config_tower_parse(const json_t *obj, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    const fv_family *f = cfg->family;
    FV_TRY(tower_of(obj, f, where, v));
    const char *width = f->tower_width ? f->tower_width : "hidden_size";
    const char *depth = f->tower_depth ? f->tower_depth : "num_hidden_layers";
    const char *heads = f->tower_heads ? f->tower_heads : "num_attention_heads";
    FV_TRY(parse_pooling(obj, where, v, &cfg->pooling_head));
    int32_t channels = 3;
    FV_TRY(fv_json_i32(obj, width, where, 1, FV_CONFIG_WIDTH_MAX, &v->d_model));
    FV_TRY(fv_json_i32(obj, "intermediate_size", where, 1, FV_CONFIG_FFN_MAX, &v->d_ffn));
    FV_TRY(fv_json_i32(obj, depth, where, 1, FV_MAX_LAYERS, &v->n_layer));
    FV_TRY(fv_json_i32(obj, heads, where, 1, FV_CONFIG_HEADS_MAX, &v->n_head));
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
        return FV_FAIL(FV_EDATA, "%s: key '%s' (%d) is not a multiple of '%s' (%d)", where, width,
                       v->d_model, heads, v->n_head);
    if (v->image < v->patch)
        return FV_FAIL(FV_EDATA, "%s: key 'image_size' (%d) is less than 'patch_size' (%d)", where,
                       v->image, v->patch);
    v->d_head = v->d_model / v->n_head;
    return FV_OK;
}
