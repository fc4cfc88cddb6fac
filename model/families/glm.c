/* GLM-4.1V (arXiv 2507.01006), GLM-4.5V, GLM-4.6V and 4.6V-Flash, and GLM-OCR: towers for images of any size with RoPE
 * by row and column, a convolution that merges 2 x 2 patches to a token, and a connector with a gated
 * FFN. GLM-4.1V's tower also has a table of positions, interpolated bicubically; GLM-OCR's norms
 * queries and keys. Videos are read as images. */
#include <stdio.h>

#include "model/families/keys.h"

enum { FRAMES = 2 };

/* Parses keys that both towers share; d_out is the class's out_hidden_size. */
static fv_status parse_tower(const json_t *vision, const char *where, int32_t d_out,
                             fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    double theta = v->rope_theta;
    v->merge = 2;
    FV_TRY(fv_json_i32(vision, "spatial_merge_size", where, 1, 64, &v->merge));
    FV_TRY(fv_config_require(vision, "in_channels", where, 3, ": images have 3 channels"));
    FV_TRY(fv_config_require(vision, "temporal_patch_size", where, FRAMES, " frames"));
    FV_TRY(fv_json_i32(vision, "out_hidden_size", where, 1, FV_CONFIG_WIDTH_MAX, &d_out));
    FV_TRY(fv_json_f32(vision, "rms_norm_eps", where, &v->ln_eps));
    FV_TRY(fv_json_bool(vision, "attention_bias", where, &v->bias_qkv));
    FV_TRY(fv_json_f64(fv_config_member(vision, "rope_parameters"), "rope_theta", where, &theta));
    v->rope_theta = (float)theta;
    if (d_out != v->d_text)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'out_hidden_size' is %d, but the text model's 'hidden_size' is %d",
                       where, d_out, v->d_text);
    if (!(theta > 0) || !(v->ln_eps >= 0 && v->ln_eps < 1))
        return FV_FAIL(
            FV_EDATA,
            "%s: keys 'rope_theta' and 'rms_norm_eps' must be greater than 0, and in [0, "
            "1)",
            where);
    if (v->d_head % 4)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: a head has %d dimensions; RoPE by row and column wants a multiple of 4",
                       where, v->d_head);
    return FV_OK;
}

/* Sets what follows from the tower's keys. */
static void set_connector(fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    v->image = v->patch * v->merge; /* the smallest */
    v->n_feature_layer = 1;
    v->feature_layer[0] = v->n_layer;
    v->connector = FV_CONNECTOR_GLM;
    v->projector_act = v->act;
    v->projector_eps = 1e-5F;
    cfg->tower_norm = false;
}

static fv_status parse_4(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(fv_config_member(root, "vision_config"), vision_where, 4096, cfg));
    v->position_side = fv_vision_side(v);
    v->d_between = v->d_ffn; /* the tower's own FFN is as wide as the text model */
    v->d_ffn = v->d_text;
    set_connector(cfg);
    return fv_config_video_token(root, where, cfg);
}

static fv_status parse_ocr(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(fv_config_member(root, "vision_config"), vision_where, 1536, cfg));
    v->bias_o = v->bias_mlp = v->bias_qkv;
    v->d_between = 3 * v->d_text;
    set_connector(cfg);
    return fv_config_video_token(root, where, cfg);
}

/* Reads limits of the area, which hold for both frames together. */
static fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    const json_t *size = fv_config_member(obj, "size");
    l->pixels_min = 112 * 112, l->pixels_max = 28 * 28 * 15000;
    if (size) l->pixels_min = l->pixels_max = 0;
    FV_TRY(fv_config_require_resize(obj, where));
    FV_TRY(fv_config_require(obj, "patch_size", where, l->patch, " as in config.json"));
    FV_TRY(fv_config_require(obj, "merge_size", where, l->merge, " as in config.json"));
    FV_TRY(fv_config_require(obj, "temporal_patch_size", where, FRAMES, " frames"));
    FV_TRY(fv_json_i32(size, "shortest_edge", where, 1, INT32_MAX, &l->pixels_min));
    FV_TRY(fv_json_i32(size, "longest_edge", where, 1, INT32_MAX, &l->pixels_max));
    if (l->pixels_min && l->pixels_max) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'size' must be {\"shortest_edge\", \"longest_edge\"}, both numbers of "
                   "pixels of two frames",
                   where);
}

static const fv_tensor_names names = {"model.language_model.",
                                      "lm_head.",
                                      "model.visual.",
                                      "model.visual.merger.",
                                      "linear_1.",
                                      "linear_2.",
                                      "image_newline",
                                      FV_TOWER_NAMES_QWEN_VL};

#define GLM                                                                                        \
    .layout = FV_LAYOUT_GLM4V, .own_tower = true, .tower_depth = "depth",                          \
    .tower_heads = "num_heads", .strategy = "full", .feature_layer = -1, .names = &names,          \
    .processor = {"Glm4vImageProcessor", "Glm46VImageProcessor"}, .read_sizes = read_sizes,        \
    .pixels = {FV_PIXELS_CLIP}

const fv_family fv_family_glm4v = {
    GLM,
    .name = "glm4v",
    .architecture = "Glm4vForConditionalGeneration",
    .text = "glm4v_text",
    .tower = "glm4v_vision",
    .image_token = 151343,
    .parse = parse_4,
};

/* The same network under another class. */
const fv_family fv_family_glm46v = {
    GLM,
    .name = "glm46v",
    .architecture = "Glm46VForConditionalGeneration",
    .text = "glm4v_text",
    .tower = "glm4v_vision",
    .image_token = 151343,
    .parse = parse_4,
};

/* GLM-4.5V and GLM-4.6V: the tower with a mixture of experts. */
const fv_family fv_family_glm4v_moe = {
    GLM,
    .name = "glm4v_moe",
    .architecture = "Glm4vMoeForConditionalGeneration",
    .text = "glm4v_moe_text",
    .tower = "glm4v_moe_vision",
    .image_token = 151363,
    .parse = parse_4,
};

const fv_family fv_family_glm_ocr = {
    GLM,
    .name = "glm_ocr",
    .architecture = "GlmOcrForConditionalGeneration",
    .text = "glm_ocr_text",
    .tower = "glm_ocr_vision",
    .image_token = 59280,
    .parse = parse_ocr,
};
