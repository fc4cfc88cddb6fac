/* Qwen2-VL (arXiv 2409.12191), Qwen2.5-VL (arXiv 2502.13923), Qwen3-VL and Qwen3.5: towers for images of any
 * size with RoPE by row and column, and a connector that merges 2 x 2 patches to a token, with
 * their combined width until its last layer. In most layers of Qwen2.5-VL's tower attention stays
 * within windows. Qwen3-VL's tower interpolates a table of positions, and some hidden states have
 * connectors of their own, whose outputs are added after the text model's first layers (deepstack,
 * arXiv 2406.04334). Qwen3.5 has Qwen3-VL's tower without deepstack; Qwen3.6 is the same class. Files have the text model's keys in text_config or, older files, beside
 * vision_config. */
#include <stdio.h>

#include "model/families/keys.h"

enum { FRAMES = 2 };

fv_status fv_config_require(const json_t *obj, const char *key, const char *where, int32_t value,
                            const char *why) {
    int32_t found = value;
    FV_TRY(fv_json_i32(obj, key, where, 1, INT32_MAX, &found));
    if (found == value) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: key '%s' is %d; it must be %d%s", where, key, found, value,
                   why);
}

static fv_status parse_rope(const json_t *vision, const char *where, fv_vision_config *v) {
    double theta = v->rope_theta;
    FV_TRY(fv_json_f64(fv_config_member(vision, "rope_parameters"), "rope_theta", where, &theta));
    v->rope_theta = (float)theta;
    if (!(theta > 0))
        return FV_FAIL(FV_EDATA, "%s: key 'rope_theta' must be greater than 0", where);
    if (v->d_head % 4)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: a head has %d dimensions; RoPE by row and column wants a multiple of 4",
                       where, v->d_head);
    return FV_OK;
}

fv_status fv_config_video_token(const json_t *root, const char *where, fv_model_config *cfg) {
    cfg->video_token = cfg->family->image_token + 1;
    FV_TRY(fv_json_i32(root, "video_token_id", where, 0, INT32_MAX, &cfg->video_token));
    if (cfg->video_token < cfg->text.vocab && cfg->video_token != cfg->image_token) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s: key 'video_token_id' is %d, with 'image_token_id' %d and 'vocab_size' %d",
                   where, cfg->video_token, cfg->image_token, cfg->text.vocab);
}

/* Parses keys that the three towers share; `out` is the key of the connector's output width. */
static fv_status parse_tower(const json_t *vision, const char *where, const char *out,
                             fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    int32_t d_out = 3584;
    v->merge = 2;
    FV_TRY(fv_json_i32(vision, "spatial_merge_size", where, 1, 64, &v->merge));
    FV_TRY(fv_config_require(vision, "in_channels", where, 3, ": images have 3 channels"));
    FV_TRY(fv_config_require(vision, "temporal_patch_size", where, FRAMES, " frames"));
    FV_TRY(fv_json_i32(vision, out, where, 1, INT32_MAX, &d_out));
    if (d_out != v->d_text)
        return FV_FAIL(FV_EDATA, "%s: key '%s' is %d, but the text model's 'hidden_size' is %d",
                       where, out, d_out, v->d_text);
    FV_TRY(parse_rope(vision, where, v));
    v->image = v->patch * v->merge; /* the smallest */
    v->n_feature_layer = 1;
    v->feature_layer[0] = v->n_layer;
    v->projector_norm = FV_PROJECTOR_NORM_PATCHES;
    v->projector_rms = v->rms_norm;
    v->projector_eps = v->ln_eps;
    v->projector_act = FV_ACT_GELU;
    v->projector_bias = v->projector_wide = true;
    cfg->tower_norm = false;
    return FV_OK;
}

static fv_status parse_2(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    const json_t *vision = fv_config_member(root, "vision_config");
    char vision_where[FV_CONFIG_WHERE_MAX];
    int32_t ratio = 4;
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(vision, vision_where, "hidden_size", cfg));
    FV_TRY(fv_json_i32(vision, "mlp_ratio", vision_where, 1, 64, &ratio));
    if (v->d_model > FV_CONFIG_FFN_MAX / ratio)
        return FV_FAIL(FV_EDATA, "%s: keys 'embed_dim' * 'mlp_ratio' are more than %d",
                       vision_where, FV_CONFIG_FFN_MAX);
    v->d_ffn = v->d_model * ratio;
    return fv_config_video_token(root, where, cfg);
}

/* Parses the list of layers without windows; numbers beyond the last layer are ignored. */
static fv_status parse_whole(const json_t *vision, const char *where, fv_vision_config *v) {
    static const int32_t usual[] = {7, 15, 23, 31};
    const json_t *list = fv_config_member(vision, "fullatt_block_indexes"), *item;
    size_t i;
    for (size_t k = 0; !list && k < sizeof usual / sizeof *usual; k++) v->whole[usual[k]] = true;
    if (list && !json_is_array(list))
        return FV_FAIL(FV_EDATA, "%s: key 'fullatt_block_indexes' must be a list", where);
    json_array_foreach(list, i, item) {
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item))
            return FV_FAIL(FV_EDATA, "%s: key 'fullatt_block_indexes' must hold integers", where);
        if (layer >= 0 && layer < v->n_layer) v->whole[layer] = true;
    }
    return FV_OK;
}

static fv_status parse_2_5(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    const json_t *vision = fv_config_member(root, "vision_config");
    char vision_where[FV_CONFIG_WHERE_MAX];
    int32_t window = 112;
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(vision, vision_where, "out_hidden_size", cfg));
    FV_TRY(fv_json_i32(vision, "window_size", vision_where, 1, INT32_MAX, &window));
    cfg->layout.tokens_per_second = 4;
    FV_TRY(fv_json_i32(vision, "tokens_per_second", vision_where, 1, INT32_MAX,
                       &cfg->layout.tokens_per_second));
    FV_TRY(fv_config_video_token(root, where, cfg));
    v->window = window / v->merge / v->patch;
    if (v->window < 1)
        return FV_FAIL(FV_EDATA, "%s: key 'window_size' is %d, less than a token of %d pixels",
                       vision_where, window, v->merge * v->patch);
    return parse_whole(vision, vision_where, v);
}

/* Parses the hidden states that are added to the text model's first layers. */
static fv_status parse_deepstack(const json_t *vision, const char *where, fv_model_config *cfg) {
    static const int32_t usual[] = {8, 16, 24};
    fv_vision_config *v = &cfg->vision;
    const json_t *list = fv_config_member(vision, "deepstack_visual_indexes");
    size_t n = list ? json_array_size(list) : sizeof usual / sizeof *usual;
    bool ascend = !list || json_is_array(list);
    if (n > FV_MAX_DEEPSTACK || (int32_t)n >= cfg->text.n_layer)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'deepstack_visual_indexes' lists %zu layers; at most %d are "
                       "possible, and fewer than the text model has (%d)",
                       where, n, FV_MAX_DEEPSTACK, cfg->text.n_layer);
    for (size_t i = 0; i < n && ascend; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t layer = list ? json_integer_value(item) : usual[i], least = 0;
        if (i > 0) least = v->deepstack[i - 1];
        ascend = (!list || json_is_integer(item)) && layer >= least && layer < v->n_layer;
        v->deepstack[i] = ascend ? (int32_t)layer + 1 : 0;
    }
    v->n_deepstack = (int32_t)n;
    if (ascend) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'deepstack_visual_indexes' must be a list of layers of the tower, "
                   "ascending",
                   where);
}

/* Parses Qwen3-VL's tower without its deepstack: Qwen3.5's. */
static fv_status parse_3_5(const json_t *root, const char *where, fv_model_config *cfg) {
    const json_t *vision = fv_config_member(root, "vision_config");
    char vision_where[FV_CONFIG_WHERE_MAX];
    int32_t n = 2304, side = 1;
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_tower(vision, vision_where, "out_hidden_size", cfg));
    FV_TRY(fv_json_i32(vision, "num_position_embeddings", vision_where, 1, 1 << 24, &n));
    while (side * side < n) side++;
    if (side * side != n)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'num_position_embeddings' is %d, which is no square", vision_where,
                       n);
    cfg->vision.position_side = side;
    return fv_config_video_token(root, where, cfg);
}

static fv_status parse_3(const json_t *root, const char *where, fv_model_config *cfg) {
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    FV_TRY(parse_3_5(root, where, cfg));
    return parse_deepstack(fv_config_member(root, "vision_config"), vision_where, cfg);
}

fv_status fv_config_read_areas(const json_t *obj, const char *where, const fv_layout_config *l,
                               int32_t frames, int32_t *least, int32_t *most) {
    const json_t *size = fv_config_member(obj, "size");
    FV_TRY(fv_config_require_resize(obj, where));
    FV_TRY(fv_config_require(obj, "patch_size", where, l->patch, " as in config.json"));
    FV_TRY(fv_config_require(obj, "merge_size", where, l->merge, " as in config.json"));
    FV_TRY(fv_config_require(obj, "temporal_patch_size", where, frames,
                             frames > 1 ? " frames" : " frame"));
    if (size) *least = *most = 0;
    FV_TRY(fv_json_i32(size, "shortest_edge", where, 1, INT32_MAX, least));
    FV_TRY(fv_json_i32(size, "longest_edge", where, 1, INT32_MAX, most));
    FV_TRY(fv_json_i32(obj, "min_pixels", where, 1, INT32_MAX, least));
    FV_TRY(fv_json_i32(obj, "max_pixels", where, 1, INT32_MAX, most));
    if (*least && *most) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'size' must be {\"shortest_edge\", \"longest_edge\"}, both numbers of "
                   "pixels, unless there are 'min_pixels' and 'max_pixels'",
                   where);
}

static fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    l->pixels_min = 56 * 56, l->pixels_max = 28 * 28 * 1280;
    return fv_config_read_areas(obj, where, l, FRAMES, &l->pixels_min, &l->pixels_max);
}

/* Refuses cap_pixels_per_frame: a limit per frame besides the limit for all frames. */
static fv_status refuse_cap(const json_t *obj, const char *where) {
    bool shared = false;
    FV_TRY(fv_json_bool(obj, "cap_pixels_per_frame", where, &shared));
    if (shared)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'cap_pixels_per_frame' is true; a second limit beside 'size' is "
                       "not supported",
                       where);
    return FV_OK;
}

static fv_status read_video(const json_t *obj, const char *where, fv_layout_config *l) {
    FV_TRY(refuse_cap(obj, where));
    l->video_pixels_min = 128 * 28 * 28, l->video_pixels_max = 768 * 28 * 28;
    return fv_config_read_areas(obj, where, l, FRAMES, &l->video_pixels_min, &l->video_pixels_max);
}

static fv_status read_video_3(const json_t *obj, const char *where, fv_layout_config *l) {
    FV_TRY(refuse_cap(obj, where));
    l->video_pixels_min = 128 * 32 * 32, l->video_pixels_max = 768 * 32 * 32;
    return fv_config_read_areas(obj, where, l, FRAMES, &l->video_pixels_min, &l->video_pixels_max);
}

/* The older names, which transformers still writes. */
static const fv_tensor_names names = {
    "model.", "lm_head.", "visual.",       "visual.merger.",
    "mlp.0.", "mlp.2.",   "image_newline", FV_TOWER_NAMES_QWEN_VL};

#define QWEN_VL_IMAGES                                                                             \
    .own_tower = true, .tower_depth = "depth", .tower_heads = "num_heads", .strategy = "full",     \
    .feature_layer = -1, .processor = {"Qwen2VLImageProcessor"}, .read_sizes = read_sizes,         \
    .pixels = {FV_PIXELS_CLIP}
#define QWEN_VL QWEN_VL_IMAGES, .image_token = 151655

const fv_family fv_family_qwen2_vl = {
    QWEN_VL,
    .name = "qwen2_vl",
    .layout = FV_LAYOUT_QWEN_VL,
    .architecture = "Qwen2VLForConditionalGeneration",
    .text = "qwen2_vl_text",
    .tower = "qwen2_vl_vision",
    .tower_width = "embed_dim",
    .flat = true,
    .names = &names,
    .parse = parse_2,
    .read_video = read_video,
};

const fv_family fv_family_qwen2_5_vl = {
    QWEN_VL,
    .name = "qwen2_5_vl",
    .layout = FV_LAYOUT_QWEN_VL,
    .architecture = "Qwen2_5_VLForConditionalGeneration",
    .text = "qwen2_5_vl_text",
    .tower = "qwen2_5_vl_vision",
    .flat = true,
    .names = &names,
    .parse = parse_2_5,
    .read_video = read_video,
};

static const fv_tensor_names names_3 = {
    "model.language_model.", "lm_head.",    "model.visual.", "model.visual.merger.",
    "linear_fc1.",           "linear_fc2.", "image_newline", FV_TOWER_NAMES_QWEN3_VL};

const fv_family fv_family_qwen3_vl = {
    QWEN_VL,
    .name = "qwen3_vl",
    .layout = FV_LAYOUT_QWEN3_VL,
    .architecture = "Qwen3VLForConditionalGeneration",
    .text = "qwen3_vl_text",
    .tower = "qwen3_vl_vision",
    .names = &names_3,
    .parse = parse_3,
    .read_video = read_video_3,
};

const fv_family fv_family_qwen3_5 = {
    QWEN_VL_IMAGES,
    .name = "qwen3_5",
    .layout = FV_LAYOUT_QWEN3_VL,
    .architecture = "Qwen3_5ForConditionalGeneration",
    .text = "qwen3_5_text",
    .tower = "qwen3_5_vision",
    .image_token = 248056,
    .names = &names_3,
    .parse = parse_3_5,
    .read_video = read_video_3,
};

/* Qwen3-VL with a mixture of experts in place of each FFN of the text model. */
const fv_family fv_family_qwen3_vl_moe = {
    QWEN_VL,
    .name = "qwen3_vl_moe",
    .layout = FV_LAYOUT_QWEN3_VL,
    .architecture = "Qwen3VLMoeForConditionalGeneration",
    .text = "qwen3_vl_moe_text",
    .tower = "qwen3_vl_vision",
    .names = &names_3,
    .parse = parse_3,
    .read_video = read_video_3,
};

/* Qwen3.5 with a mixture of experts and a shared expert in place of each FFN of the text model. */
const fv_family fv_family_qwen3_5_moe = {
    QWEN_VL_IMAGES,
    .name = "qwen3_5_moe",
    .layout = FV_LAYOUT_QWEN3_VL,
    .architecture = "Qwen3_5MoeForConditionalGeneration",
    .text = "qwen3_5_moe_text",
    .tower = "qwen3_5_vision",
    .image_token = 248056,
    .names = &names_3,
    .parse = parse_3_5,
    .read_video = read_video_3,
};
