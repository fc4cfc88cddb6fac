/* LLaVA-1.5 (arXiv 2310.03744): a CLIP tower on one square image, features of some of its layers, a
 * two-layer projector. SigLIP towers occur too. */
#include <string.h>

#include "model/families/keys.h"

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
        json_int_t at = item ? json_integer_value(item) : cfg->family->feature_layer;
        if (at < -(json_int_t)n_layer - 1 || at > n_layer)
            return FV_FAIL(FV_EDATA,
                           "%s: key '%s' holds %lld; the tower of %d layers has %d hidden states",
                           where, key, (long long)at, n_layer, n_layer + 1);
        cfg->vision.feature_layer[i] = (int32_t)(at < 0 ? at + n_layer + 1 : at);
    }
    cfg->vision.n_feature_layer = (int32_t)n;
    return FV_OK;
}

/* Parses the strategy: "default" drops the class token, "full" keeps it if the tower has one. */
static fv_status parse_strategy(const json_t *root, const char *where, fv_model_config *cfg) {
    const char *strategy = cfg->family->strategy;
    FV_TRY(fv_json_str(root, "vision_feature_select_strategy", where, &strategy));
    bool full = !strcmp(strategy, "full"), has = cfg->vision.class_token;
    if (!full && strcmp(strategy, "default") != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'vision_feature_select_strategy' is '%s'; 'default' and 'full' are "
                       "possible",
                       where, strategy);
    if (!full && !has)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: key 'vision_feature_select_strategy' is 'default', which drops the class "
            "token, and the vision tower has none: it must be 'full'",
            where);
    if (full && has && cfg->family->layout != FV_LAYOUT_LLAVA)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'vision_feature_select_strategy' is 'full', which keeps the class "
                       "token, and tiles have no place for it: it must be 'default'",
                       where);
    cfg->vision.keep_cls = full && has;
    return FV_OK;
}

fv_status fv_config_features_parse(const json_t *root, const char *where, fv_model_config *cfg) {
    FV_TRY(parse_feature_layers(root, where, cfg));
    FV_TRY(parse_strategy(root, where, cfg));
    cfg->vision.merge = 1;
    cfg->vision.projector_act = FV_ACT_GELU;
    cfg->vision.projector_bias = true;
    return fv_config_activation(root, "projector_hidden_act", where, &cfg->vision.projector_act);
}

fv_status fv_config_llava_parse(const json_t *root, const char *where, fv_model_config *cfg) {
    FV_TRY(fv_config_features_parse(root, where, cfg));
    return fv_json_bool(root, "multimodal_projector_bias", where, &cfg->vision.projector_bias);
}

/* Checks that the resize alone, without a crop, gives the tower's size. */
static fv_status check_resize(const fv_layout_config *l, const char *where) {
    /* resizing a square by its shortest edge gives a box */
    if (l->pad_square && l->shortest_edge == l->tile) return FV_OK;
    if (!l->shortest_edge && l->resize.h == l->tile && l->resize.w == l->tile) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: without 'do_center_crop' keys 'do_resize' and 'size' must give the vision "
                   "tower's %dx%d for every image",
                   where, l->tile, l->tile);
}

fv_status fv_config_llava_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    const char *type = "", *aspect = "";
    bool do_resize = true, do_crop = true, do_pad = false;
    fv_layout_size crop = {l->tile, l->tile};
    l->shortest_edge = l->tile;
    FV_TRY(fv_config_read_type(obj, where, &type));
    FV_TRY(fv_json_bool(obj, "do_resize", where, &do_resize));
    FV_TRY(fv_json_bool(obj, "do_center_crop", where, &do_crop));
    FV_TRY(fv_config_read_size(obj, where, &l->shortest_edge, &l->resize));
    FV_TRY(fv_config_read_crop(obj, where, &crop));
    if (!do_resize) l->shortest_edge = l->resize.w = l->resize.h = 0;
    /* Two keys mean "pad to a square with the mean colour". */
    FV_TRY(fv_json_str(obj, "image_aspect_ratio", where, &aspect));
    FV_TRY(fv_json_bool(obj, "do_pad", where, &do_pad));
    l->pad_square = l->pad_square || !strcmp(aspect, "pad") || (do_pad && type[0] == 'L');
    if (!strcmp(aspect, "anyres"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'image_aspect_ratio' is 'anyres', but LLaVA-1.5 has no tiles; for "
                       "LLaVA-NeXT config.json must say 'llava_next'",
                       where);
    if (!do_crop) return check_resize(l, where);
    if (crop.h == l->tile && crop.w == l->tile) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'crop_size' is %dx%d, but the vision tower needs %dx%d", where, crop.h,
                   crop.w, l->tile, l->tile);
}

const fv_family fv_family_llava = {
    .name = "llava",
    .architecture = "LlavaForConditionalGeneration",
    .layout = FV_LAYOUT_LLAVA,
    .text = "llama",
    .tower = "clip_vision_model",
    .vision =
        {.d_model = 1024, .d_ffn = 4096, .n_layer = 24, .n_head = 16, .image = 336, .patch = 14},
    .image_token = 32000,
    .strategy = "default",
    .feature_layer = -2,
    .parse = fv_config_llava_parse,
    .processor = {"CLIPImageProcessor", "CLIPFeatureExtractor", "LlavaImageProcessor",
                  "VideoLlavaImageProcessor"},
    .read_sizes = fv_config_llava_sizes,
    .pixels = {FV_PIXELS_CLIP},
};
