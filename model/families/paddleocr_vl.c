/* PaddleOCR-VL (arXiv 2510.14528): a SigLIP tower for images of any size, with interpolated positions
 * and RoPE by row and column, Qwen2-VL's connector, and ERNIE 4.5 with M-RoPE. */
#include <stdio.h>

#include "model/families/keys.h"

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    const json_t *vision = fv_config_member(root, "vision_config");
    char vision_where[FV_CONFIG_WHERE_MAX];
    double theta = v->rope_theta;
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    v->merge = 2;
    FV_TRY(fv_json_i32(vision, "spatial_merge_size", vision_where, 1, 64, &v->merge));
    FV_TRY(fv_json_f64(fv_config_member(vision, "rope_parameters"), "rope_theta", vision_where,
                       &theta));
    v->rope_theta = (float)theta;
    if (!(theta > 0))
        return FV_FAIL(FV_EDATA, "%s: key 'rope_theta' must be greater than 0", vision_where);
    if (v->d_head % 4)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: a head has %d dimensions; RoPE by row and column wants a multiple of 4",
                       vision_where, v->d_head);
    v->position_side = fv_vision_side(v);
    v->image = v->patch * v->merge; /* the smallest */
    v->n_feature_layer = 1;
    v->feature_layer[0] = v->n_layer;
    v->projector_norm = FV_PROJECTOR_NORM_PATCHES;
    v->projector_eps = 1e-5F;
    v->projector_act = FV_ACT_GELU;
    v->projector_bias = v->projector_wide = true;
    cfg->tower_norm = false;
    cfg->pooling_head = cfg->packed_positions = true; /* in published files */
    return FV_OK;
}

static fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    l->pixels_min = 384 * 384, l->pixels_max = 1536 * 1536;
    return fv_config_read_areas(obj, where, l, 1, &l->pixels_min, &l->pixels_max);
}

static const fv_tensor_names names = {"model.language_model.",
                                      "lm_head.",
                                      "model.visual.vision_model.",
                                      "model.projector.",
                                      "linear_1.",
                                      "linear_2.",
                                      "image_newline",
                                      FV_TOWER_NAMES_PADDLEOCR};

const fv_family fv_family_paddleocr_vl = {
    .name = "paddleocr_vl",
    .architecture = "PaddleOCRVLForConditionalGeneration",
    .layout = FV_LAYOUT_PADDLEOCR_VL,
    .text = "paddleocr_vl_text",
    .flat = true,
    .tied = true,
    .tower = "paddleocr_vl_vision",
    .own_tower = true,
    .image_token = 100295,
    .strategy = "full",
    .feature_layer = -1,
    .names = &names,
    .parse = parse,
    .processor = {"PaddleOCRVLImageProcessor"},
    .read_sizes = read_sizes,
    .pixels = {FV_PIXELS_CLIP},
};
