/* MobileVLM V2 (arXiv 2402.03766) in its published layout: LLaVA's own names, a CLIP tower in a
 * directory of its own, and a connector that makes 12 x 12 tokens of an image. */
#include <string.h>

#include "model/families/keys.h"

enum { SIDE = 12 };

static fv_status require(const json_t *root, const char *key, const char *is, const char *must_be,
                         const char *where) {
    const char *value = is;
    FV_TRY(fv_json_str(root, key, where, &value));
    if (!strcmp(value, must_be)) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: key '%s' is '%s'; MobileVLM V2 has '%s'", where, key,
                   value, must_be);
}

/* Parses the index of the hidden state that tokens are made from. */
static fv_status parse_layer(const json_t *root, const char *where, fv_vision_config *v) {
    int32_t n = v->n_layer, at = -2;
    FV_TRY(fv_json_i32(root, "mm_vision_select_layer", where, -n - 1, n, &at));
    v->feature_layer[0] = at < 0 ? at + n + 1 : at;
    v->n_feature_layer = 1;
    return FV_OK;
}

static fv_status parse_aspect(const json_t *root, const char *where, bool *pad) {
    const char *aspect = "square";
    FV_TRY(fv_json_str(root, "image_aspect_ratio", where, &aspect));
    *pad = !strcmp(aspect, "pad");
    if (*pad || !strcmp(aspect, "square")) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'image_aspect_ratio' is '%s'; 'pad' and 'square' are possible", where,
                   aspect);
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    int32_t width = v->d_model, side = fv_vision_side(v);
    bool start_end = false;
    FV_TRY(require(root, "mm_projector_type", "linear", "ldpnetv2", where));
    FV_TRY(require(root, "vision_tower_type", "clip", "clip", where));
    FV_TRY(require(root, "mm_vision_select_feature", "patch", "patch", where));
    FV_TRY(fv_json_bool(root, "mm_use_im_start_end", where, &start_end));
    FV_TRY(fv_json_i32(root, "mm_hidden_size", where, 1, FV_CONFIG_WIDTH_MAX, &width));
    FV_TRY(parse_layer(root, where, v));
    FV_TRY(parse_aspect(root, where, &cfg->layout.pad_square));
    if (start_end)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'mm_use_im_start_end' is true; images without tokens around them "
                       "are possible",
                       where);
    if (width != v->d_model)
        return FV_FAIL(FV_EDATA, "%s: key 'mm_hidden_size' is %d, but the vision tower has %d",
                       where, width, v->d_model);
    v->merge = side / SIDE;
    if (v->merge < 2 || side % SIDE)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: vision_config: keys 'image_size' and 'patch_size' give %d patches a "
                       "side; a multiple of %d from %d on is possible",
                       where, side, SIDE, 2 * SIDE);
    v->connector = FV_CONNECTOR_LDP;
    v->projector_act = FV_ACT_GELU;
    v->projector_bias = true;
    return FV_OK;
}

static const fv_tensor_names names = {
    .text = "model.",
    .head = "lm_head.",
    .tower = "model.vision_tower.vision_tower.vision_model.",
    .projector = "model.mm_projector.",
    .linear_1 = "mlp.mlp.0.",
    .linear_2 = "mlp.mlp.2.",
    .newline = "model.image_newline",
    .inside = FV_TOWER_NAMES_MOBILEVLM,
};

/* The image processor's file is in the tower's directory and read like LLaVA's. */
const fv_family fv_family_mobilevlm = {
    .name = "mobilevlm",
    .architecture = "MobileLlamaForCausalLM",
    .layout = FV_LAYOUT_LLAVA,
    .text = "llama",
    .flat = true,
    .tower_apart = true,
    .tower = "clip_vision_model",
    .vision =
        {.d_model = 1024, .d_ffn = 4096, .n_layer = 24, .n_head = 16, .image = 336, .patch = 14},
    .image_token = FV_IMAGE_TOKEN_BEYOND,
    .names = &names,
    .parse = parse,
    .pixels = {FV_PIXELS_CLIP},
};
