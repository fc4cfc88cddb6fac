/* InternVL 2.5 and 3 (arXiv 2412.05271, 2504.10479) as in transformers, model_type internvl: an
 * InternViT tower, features of merged patches, LayerNorm and two linear layers. */
#include <stdio.h>
#include <string.h>

#include "model/families/keys.h"

static fv_status parse_norm_type(const json_t *vision, const char *where, bool *rms) {
    const char *type = "layer_norm";
    FV_TRY(fv_json_str(vision, "norm_type", where, &type));
    *rms = !strcmp(type, "rms_norm");
    if (*rms || !strcmp(type, "layer_norm")) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'norm_type' is '%s'; layer_norm and rms_norm are possible", where,
                   type);
}

static fv_status parse_tower(const json_t *vision, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    bool positions = true, mean_pooling = true;
    FV_TRY(parse_norm_type(vision, where, &v->rms_norm));
    FV_TRY(fv_json_bool(vision, "attention_bias", where, &v->bias_qkv));
    FV_TRY(fv_json_bool(vision, "use_qk_norm", where, &v->qk_norm));
    FV_TRY(fv_json_bool(vision, "use_mask_token", where, &cfg->mask_token));
    FV_TRY(fv_json_bool(vision, "use_absolute_position_embeddings", where, &positions));
    FV_TRY(fv_json_bool(vision, "use_mean_pooling", where, &mean_pooling));
    cfg->leading_ones = true;
    cfg->tower_norm = !mean_pooling;
    if (positions) return FV_OK;
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: key 'use_absolute_position_embeddings' is false; the engine has InternViT with "
        "position embeddings only",
        where);
}

/* Parses downsample_ratio: 1 / (patches on the side of a token). */
fv_status fv_config_ratio_parse(const json_t *root, const char *where, fv_vision_config *v) {
    double ratio = 0.5;
    FV_TRY(fv_json_f64(root, "downsample_ratio", where, &ratio));
    v->merge = ratio > 0.01 && ratio <= 1 ? (int32_t)(1 / ratio) : 0;
    if (v->merge && ratio * v->merge == 1 && fv_vision_side(v) % v->merge == 0) return FV_OK;
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: key 'downsample_ratio' is %g; it must be 1 over a divisor of vision_config's "
        "image_size / patch_size (%d)",
        where, ratio, fv_vision_side(v));
}

/* The tower's last norm applies only to the last hidden state, requested as -1. */
static fv_status parse_last_norm(const json_t *root, const char *where, fv_model_config *cfg) {
    const json_t *layer = fv_config_member(root, "vision_feature_layer");
    if (json_is_array(layer))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'vision_feature_layer' is a list; InternVL reads one layer", where);
    cfg->vision.post_norm = cfg->tower_norm && (!layer || json_integer_value(layer) == -1);
    return FV_OK;
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(fv_config_member(root, "vision_config"), vision_where, cfg));
    FV_TRY(fv_config_features_parse(root, where, cfg));
    cfg->vision.projector_norm = FV_PROJECTOR_NORM_FEATURES;
    cfg->vision.projector_eps = 1e-5F;
    FV_TRY(fv_config_ratio_parse(root, where, &cfg->vision));
    return parse_last_norm(root, where, cfg);
}

/* Files say crop_to_patches = false, but transformers' processor requests true. */
fv_status fv_config_internvl_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    int32_t edge = 0;
    fv_layout_size size = {384, 384}; /* the class's */
    const bool original =
        l->tiles_min > 0; /* its config.json has the tiles, its size is a number */
    if (original)
        size = (fv_layout_size){l->tile, l->tile};
    else
        l->tiles_min = 1, l->tiles_max = 12;
    FV_TRY(fv_config_require_resize(obj, where));
    FV_TRY(fv_config_read_size(obj, where, &edge, &size));
    FV_TRY(fv_json_i32(obj, "min_patches", where, 1, FV_LAYOUT_TILES_MAX, &l->tiles_min));
    FV_TRY(fv_json_i32(obj, "max_patches", where, 1, FV_LAYOUT_TILES_MAX, &l->tiles_max));
    if (original && edge) size = (fv_layout_size){edge, edge}, edge = 0;
    if (!edge && size.w == l->tile && size.h == l->tile) return FV_OK;
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: key 'size' must be {\"height\": %d, \"width\": %d}: tiles are of the vision "
        "tower's size",
        where, l->tile, l->tile);
}

static const fv_tensor_names names = {.inside = FV_TOWER_NAMES_INTERNVL};

const fv_family fv_family_internvl = {
    .name = "internvl",
    .architecture = "InternVLForConditionalGeneration",
    .layout = FV_LAYOUT_INTERNVL,
    .text = "qwen2",
    .tied = true,
    .tower = "internvl_vision",
    .own_tower = true,
    .image_token = 151667,
    .strategy = "default",
    .feature_layer = -1,
    .names = &names,
    .parse = parse,
    .processor = {"GotOcr2ImageProcessor"},
    .read_sizes = fv_config_internvl_sizes,
    .pixels = {FV_PIXELS_CLIP},
};
