/* Mistral Small 3.1 and later, and Pixtral 12B, with Pixtral's tower (arXiv 2410.07073): images of any size, RoPE by
 * row and column, gated FFNs. Features are normed, merged by a linear layer, and go through two
 * more. */
#include <stdio.h>

#include "model/families/keys.h"

static fv_status parse_tower(const json_t *vision, const char *where, fv_vision_config *v) {
    double theta = v->rope_theta;
    int32_t d_head = v->d_head;
    FV_TRY(fv_json_f64(vision, "rope_theta", where, &theta));
    FV_TRY(fv_json_f64(fv_config_member(vision, "rope_parameters"), "rope_theta", where, &theta));
    FV_TRY(fv_json_i32(vision, "head_dim", where, 1, INT32_MAX, &d_head));
    v->rope_theta = (float)theta;
    if (!(theta > 0))
        return FV_FAIL(FV_EDATA, "%s: key 'rope_theta' must be greater than 0", where);
    if (d_head != v->d_head || d_head % 4)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: key 'head_dim' is %d and 'hidden_size' / 'num_attention_heads' %d; they "
            "must be equal, and a multiple of 4 for RoPE by row and column",
            where, d_head, v->d_head);
    return FV_OK;
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    if (!fv_config_member(root, "text_config"))
        return FV_FAIL(FV_EDATA, "%s: key 'text_config' is missing", where);
    FV_TRY(parse_tower(fv_config_member(root, "vision_config"), vision_where, v));
    FV_TRY(fv_config_features_parse(root, where, cfg));
    if (v->n_feature_layer != 1)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'vision_feature_layer' lists %d layers; Mistral 3 reads one", where,
                       v->n_feature_layer);
    v->projector_bias = false;
    FV_TRY(fv_json_bool(root, "multimodal_projector_bias", where, &v->projector_bias));
    v->merge = 2;
    FV_TRY(fv_json_i32(root, "spatial_merge_size", where, 1, 64, &v->merge));
    if (v->image < v->patch * v->merge)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'spatial_merge_size' is %d: a token is larger than vision_config's "
                       "image_size (%d)",
                       where, v->merge, v->image);
    v->projector_norm = FV_PROJECTOR_NORM_PATCHES;
    v->projector_rms = true;
    v->projector_eps = cfg->text.rms_eps;
    v->patch_merger = true;
    cfg->tower_norm = false;
    return FV_OK;
}

/* A token's size comes from config.json, as in transformers' processor. */
static fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    const json_t *size = fv_config_member(obj, "size");
    int32_t edge = 0;
    fv_layout_size box = {1024, 1024}; /* the class's */
    FV_TRY(fv_config_require_resize(obj, where));
    if (json_is_object(size) && fv_config_member(size, "longest_edge"))
        FV_TRY(fv_config_read_edge(size, "longest_edge", where, &edge));
    else
        FV_TRY(fv_config_read_size(obj, where, &edge, &box));
    l->resize = edge ? (fv_layout_size){edge, edge} : box;
    return FV_OK;
}

static const fv_tensor_names names = {.inside = FV_TOWER_NAMES_PIXTRAL};

const fv_family fv_family_mistral3 = {
    .name = "mistral3",
    .architecture = "Mistral3ForConditionalGeneration",
    .layout = FV_LAYOUT_MISTRAL3,
    .text = "mistral",
    .tied = true,
    .tower = "pixtral",
    .vision =
        {.d_model = 1024, .d_ffn = 4096, .n_layer = 24, .n_head = 16, .image = 1540, .patch = 14},
    .image_token = 10,
    .strategy = "full",
    .feature_layer = -1,
    .names = &names,
    .parse = parse,
    .processor = {"PixtralImageProcessor"},
    .read_sizes = read_sizes,
    .pixels = {FV_PIXELS_CLIP},
};

/* ---- Pixtral 12B ------------------------------------------------------------------------------ */

/* Files have LLaVA's model_type, and LLaVA's connector: each patch is a token. */
static fv_status parse_pixtral(const json_t *root, const char *where, fv_model_config *cfg) {
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(fv_config_member(root, "vision_config"), vision_where, &cfg->vision));
    cfg->tower_norm = false;
    return fv_config_llava_parse(root, where, cfg);
}

const fv_family fv_family_pixtral = {
    .name = "pixtral",
    .type = "llava",
    .architecture = "LlavaForConditionalGeneration",
    .layout = FV_LAYOUT_MISTRAL3,
    .text = "llama",
    .tower = "pixtral",
    .image_token = 32000,
    .strategy = "default",
    .feature_layer = -2,
    .names = &names,
    .parse = parse_pixtral,
    .processor = {"PixtralImageProcessor"},
    .read_sizes = read_sizes,
    .pixels = {FV_PIXELS_CLIP},
};

/* ---- LightOnOCR ------------------------------------------------------------------------------- */

/* Mistral 3's tower and connector, with other names and fixed keys. */
static fv_status parse_lighton(const json_t *root, const char *where, fv_model_config *cfg) {
    FV_TRY(parse(root, where, cfg));
    cfg->vision.n_feature_layer = 1;
    cfg->vision.feature_layer[0] = cfg->vision.n_layer;
    cfg->vision.projector_act = FV_ACT_GELU;
    cfg->vision.projector_bias = false;
    return FV_OK;
}

/* Sides are rounded to the file's patches, whatever a token's are. */
static fv_status read_lighton_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    const json_t *v = fv_config_member(obj, "patch_size");
    int32_t w = 16, h = 16; /* the class's */
    FV_TRY(read_sizes(obj, where, l));
    if (json_is_object(v)) {
        FV_TRY(fv_json_i32(v, "width", where, 1, FV_LAYOUT_SIDE_MAX, &w));
        FV_TRY(fv_json_i32(v, "height", where, 1, FV_LAYOUT_SIDE_MAX, &h));
    } else {
        FV_TRY(fv_config_read_edge(obj, "patch_size", where, &w));
        h = v ? w : h;
    }
    l->shortest_edge = w;
    if (w == h) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'patch_size' is %dx%d; patches must be square", where,
                   h, w);
}

static const fv_tensor_names lighton_names = {"model.language_model.",
                                              "lm_head.",
                                              "model.vision_encoder.",
                                              "model.vision_projection.",
                                              "linear_1.",
                                              "linear_2.",
                                              "image_newline",
                                              FV_TOWER_NAMES_PIXTRAL};

const fv_family fv_family_lighton_ocr = {
    .name = "lighton_ocr",
    .architecture = "LightOnOcrForConditionalGeneration",
    .layout = FV_LAYOUT_LIGHTON_OCR,
    .text = "qwen3",
    .tied = true,
    .tower = "pixtral",
    .vision =
        {.d_model = 1024, .d_ffn = 4096, .n_layer = 24, .n_head = 16, .image = 1540, .patch = 14},
    .image_token = 151655,
    .strategy = "full",
    .feature_layer = -1,
    .names = &lighton_names,
    .parse = parse_lighton,
    .processor = {"PixtralImageProcessor"},
    .read_sizes = read_lighton_sizes,
    .pixels = {FV_PIXELS_CLIP},
};
