/* InternVL in its original layout, model_type internvl_chat: the network of internvl.c with other
 * keys and tensor names. The text model's keys are in llm_config, sizes of tiles are in config.json,
 * and queries, keys and values of the tower are one tensor. Only the tokenizer knows the id of the
 * image token. The chat template is chosen by name. */
#include <stdio.h>
#include <string.h>

#include "model/families/keys.h"

/* Chat templates of the original repository that a supported text model uses. */
static const struct {
    const char *name, *end; /* the token that ends a turn */
} chats[] = {
    {"internvl2_5", "<|im_end|>"},
    {"Hermes-2", "<|im_end|>"},
    {"phi3-chat", "<|end|>"},
};

static fv_status parse_chat(const json_t *root, const char *where, fv_model_config *cfg) {
    const char *name = NULL;
    FV_TRY(fv_json_str(root, "template", where, &name));
    for (size_t i = 0; name && i < sizeof chats / sizeof *chats; i++) {
        if (strcmp(name, chats[i].name) != 0) continue;
        snprintf(cfg->chat, sizeof cfg->chat, "%s", name);
        cfg->chat_end = chats[i].end;
    }
    return FV_OK;
}

static fv_status parse_tower(const json_t *vision, const char *where, fv_vision_config *v) {
    const char *type = v->rms_norm ? "rms_norm" : "layer_norm";
    FV_TRY(fv_json_str(vision, "norm_type", where, &type));
    v->rms_norm = !strcmp(type, "rms_norm");
    FV_TRY(fv_json_bool(vision, "qkv_bias", where, &v->bias_qkv));
    FV_TRY(fv_json_bool(vision, "qk_normalization", where, &v->qk_norm));
    if (v->rms_norm || !strcmp(type, "layer_norm")) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'norm_type' is '%s'; layer_norm and rms_norm are possible", where,
                   type);
}

/* Refuses what the engine does not have: other orders of merged patches, padding, one tile without
 * the whole image, and positions that are interpolated to another size. */
static fv_status refuse_others(const json_t *root, const char *where, const fv_vision_config *v) {
    const char *order = "v1"; /* the class's */
    bool pad = false, whole = false;
    int32_t size = v->image;
    FV_TRY(fv_json_str(root, "ps_version", where, &order));
    FV_TRY(fv_json_bool(root, "pad2square", where, &pad));
    FV_TRY(fv_json_bool(root, "use_thumbnail", where, &whole));
    FV_TRY(fv_json_i32(root, "force_image_size", where, 1, INT32_MAX, &size));
    if (strcmp(order, "v2") != 0)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key 'ps_version' is '%s'; only v2 is possible", where,
                       order);
    if (pad || !whole)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: keys 'pad2square' and 'use_thumbnail' are %s and %s; only false and "
                       "true are possible",
                       where, pad ? "true" : "false", whole ? "true" : "false");
    if (size != v->image)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'force_image_size' is %d, but the tower's 'image_size' is %d",
                       where, size, v->image);
    return FV_OK;
}

static fv_status parse_tiles(const json_t *root, const char *where, fv_layout_config *l) {
    bool tiles = false;
    l->tiles_min = 1, l->tiles_max = 6; /* the class's */
    FV_TRY(fv_json_i32(root, "min_dynamic_patch", where, 1, FV_LAYOUT_TILES_MAX, &l->tiles_min));
    FV_TRY(fv_json_i32(root, "max_dynamic_patch", where, 1, FV_LAYOUT_TILES_MAX, &l->tiles_max));
    FV_TRY(fv_json_bool(root, "dynamic_image_size", where, &tiles));
    if (!tiles) l->tiles_min = l->tiles_max = 1;
    return FV_OK;
}

/* Parses select_layer, an index into the tower's hidden states: the output of that layer. */
static fv_status parse_layer(const json_t *root, const char *where, fv_vision_config *v) {
    int32_t layer = -1;
    FV_TRY(fv_json_i32(root, "select_layer", where, -v->n_layer, v->n_layer, &layer));
    v->n_feature_layer = 1;
    v->feature_layer[0] = layer < 0 ? layer + v->n_layer + 1 : layer;
    return FV_OK;
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(fv_config_member(root, "vision_config"), vision_where, v));
    FV_TRY(refuse_others(root, where, v));
    FV_TRY(parse_layer(root, where, v));
    FV_TRY(parse_chat(root, where, cfg));
    FV_TRY(parse_tiles(root, where, &cfg->layout));
    cfg->leading_ones = true;
    cfg->tower_norm = false;
    v->projector_norm = FV_PROJECTOR_NORM_FEATURES;
    v->projector_eps = 1e-5F;
    v->projector_act = FV_ACT_GELU;
    v->projector_bias = true;
    return fv_config_ratio_parse(root, where, v);
}

static const fv_tensor_names names = {
    "language_model.model.", "language_model.lm_head.",   "vision_model.", "mlp1.", "1.", "3.",
    "image_newline",         FV_TOWER_NAMES_INTERNVL_CHAT};

const fv_family fv_family_internvl_chat = {
    .name = "internvl_chat",
    .architecture = "InternVLChatModel",
    .layout = FV_LAYOUT_INTERNVL,
    .text = "qwen2",
    .text_key = "llm_config",
    .tower = "intern_vit_6b",
    .own_tower = true,
    .image_token = FV_IMAGE_TOKEN_NAMED,
    .names = &names,
    .parse = parse,
    .processor = {"CLIPFeatureExtractor", "CLIPImageProcessor"},
    .read_sizes = fv_config_internvl_sizes,
    .pixels = {FV_PIXELS_CLIP},
};
