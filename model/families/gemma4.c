/* Gemma 4: images keep their aspect ratio. In E2B, E4B, 26B-A4B and 31B a tower with RoPE by row and column reads patches, and a
 * token is the mean of a square of them; 12B, whose model_type is gemma4_unified, has no tower: a patch
 * is as large as a token, and its pixels are normed and multiplied by a matrix. Sound is not read. */
#include <stdio.h>
#include <string.h>

#include "model/families/keys.h"

enum { POSITIONS_MAX = 1 << 20 };

static fv_status refuse_key(const json_t *obj, const char *key, const char *where,
                            const char *why) {
    bool is = false;
    FV_TRY(fv_json_bool(obj, key, where, &is));
    if (!is) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: key '%s' is true; %s", where, key, why);
}

/* Reads the ids of tokens that stand for images, videos and sound. Ids outside the vocabulary never
 * come. */
static fv_status parse_holders(const json_t *root, const char *where, fv_text_config *t) {
    static const struct {
        const char *key;
        int32_t id;
    } keys[] = {{"image_token_id", 258880}, {"video_token_id", 258884}, {"audio_token_id", 258881}};
    const json_t *text = fv_config_member(root, "text_config");
    FV_TRY(fv_json_i32(text, "pad_token_id", where, 0, t->vocab - 1, &t->pad));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        t->holder[i] = keys[i].id;
        FV_TRY(fv_json_i32(root, keys[i].key, where, 0, INT32_MAX, &t->holder[i]));
    }
    t->n_holder = sizeof keys / sizeof *keys;
    return FV_OK;
}

/* Parses what both kinds share, once patch and merge are known. */
static fv_status share(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    v->image = v->patch * v->merge; /* the smallest */
    v->connector = FV_CONNECTOR_LINEAR;
    v->n_feature_layer = 1;
    v->feature_layer[0] = v->n_layer;
    v->projector_norm = FV_PROJECTOR_NORM_FEATURES;
    v->projector_rms = v->projector_plain = v->channels_last = true;
    cfg->tower_norm = false;
    return parse_holders(root, where, &cfg->text);
}

static fv_status parse_heads(const json_t *obj, const char *where, fv_vision_config *v) {
    int32_t d = 64, n_kv = 12;
    double theta = 100;
    const char *type = "axial";
    const json_t *rope = fv_config_member(obj, "rope_parameters");
    FV_TRY(fv_json_i32(obj, "head_dim", where, 1, FV_CONFIG_WIDTH_MAX, &d));
    FV_TRY(fv_json_i32(obj, "num_key_value_heads", where, 1, FV_CONFIG_HEADS_MAX, &n_kv));
    FV_TRY(fv_json_f64(rope, "rope_theta", where, &theta));
    FV_TRY(fv_json_str(rope, "rope_type", where, &type));
    if (d != v->d_head || d % 4 || n_kv != v->n_head)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: %d heads, %d of keys, of %d dimensions; the tower wants as many of keys, "
            "and 'head_dim' a multiple of 4 and 'hidden_size' (%d) over the heads",
            where, v->n_head, n_kv, d, v->d_model);
    if ((strcmp(type, "axial") != 0 && strcmp(type, "default") != 0) || !(theta > 0))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'rope_parameters': type '%s', theta %g; it must be axial, above 0",
                       where, type, theta);
    v->rope_theta = (float)theta;
    return FV_OK;
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    const json_t *vision = fv_config_member(root, "vision_config");
    char vision_where[FV_CONFIG_WHERE_MAX];
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    v->merge = 3;
    v->position_axis = 10240;
    FV_TRY(fv_json_i32(vision, "pooling_kernel_size", vision_where, 1, 64, &v->merge));
    FV_TRY(fv_json_i32(vision, "position_embedding_size", vision_where, 1, POSITIONS_MAX,
                       &v->position_axis));
    FV_TRY(fv_json_f32(vision, "rms_norm_eps", vision_where, &v->ln_eps));
    FV_TRY(fv_config_activation(vision, "hidden_activation", vision_where, &v->act));
    FV_TRY(fv_json_bool(vision, "standardize", vision_where, &v->standardize));
    FV_TRY(refuse_key(vision, "attention_bias", vision_where, "no Gemma 4 has it"));
    FV_TRY(fv_json_bool(vision, "use_clipped_linears", vision_where, &v->clipped));
    FV_TRY(parse_heads(vision, vision_where, v));
    if (!(v->ln_eps >= 0 && v->ln_eps < 1))
        return FV_FAIL(FV_EDATA, "%s: key 'rms_norm_eps' must be in [0, 1)", vision_where);
    v->projector_eps = v->ln_eps;
    v->head_norms = v->post_norms = v->pool_patches = v->centred = true;
    return share(root, where, cfg);
}

static fv_status parse_unified(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    const json_t *vision = fv_config_member(root, "vision_config");
    char vision_where[FV_CONFIG_WHERE_MAX];
    int32_t pool = 3, width = v->d_model;
    snprintf(vision_where, sizeof vision_where, "%s: vision_config", where);
    v->position_axis = 1120;
    v->projector_eps = 1e-6F;
    FV_TRY(fv_json_i32(vision, "pooling_kernel_size", vision_where, 1, 64, &pool));
    FV_TRY(
        fv_json_i32(vision, "mm_posemb_size", vision_where, 1, POSITIONS_MAX, &v->position_axis));
    FV_TRY(fv_json_f32(vision, "rms_norm_eps", vision_where, &v->projector_eps));
    FV_TRY(fv_json_i32(vision, "output_proj_dims", vision_where, 1, FV_CONFIG_WIDTH_MAX, &width));
    if (width != v->d_model)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: keys 'output_proj_dims' (%d) and 'mm_embed_dim' (%d) must be equal",
                       vision_where, width, v->d_model);
    if (!(v->projector_eps >= 0 && v->projector_eps < 1))
        return FV_FAIL(FV_EDATA, "%s: key 'rms_norm_eps' must be in [0, 1)", vision_where);
    v->patch *= pool;
    v->merge = v->n_head = v->d_ffn = 1;
    v->d_head = v->d_model;
    v->n_layer = 0;
    v->patch_norms = v->patch_bias = v->position_pairs = true;
    return share(root, where, cfg);
}

/* Reads the number of tokens of an image at most. The class has these five. */
static fv_status read_tokens(const json_t *obj, const char *where, int32_t tokens,
                             const fv_layout_config *l, int32_t *pixels) {
    static const int32_t possible[] = {70, 140, 280, 560, 1120};
    const int32_t side = l->patch * l->merge;
    int32_t patch = 16, pool = 3;
    bool known = false;
    FV_TRY(fv_json_i32(obj, "max_soft_tokens", where, 1, INT32_MAX, &tokens));
    FV_TRY(fv_json_i32(obj, "patch_size", where, 1, FV_LAYOUT_SIDE_MAX, &patch));
    FV_TRY(fv_json_i32(obj, "pooling_kernel_size", where, 1, FV_LAYOUT_SIDE_MAX, &pool));
    for (size_t i = 0; i < sizeof possible / sizeof *possible; i++)
        known = known || tokens == possible[i];
    if (!known)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'max_soft_tokens' is %d; it must be 70, 140, 280, 560 or 1120",
                       where, tokens);
    if (patch * (int64_t)pool != side)
        return FV_FAIL(FV_EDATA,
                       "%s: keys 'patch_size' (%d) and 'pooling_kernel_size' (%d) make tokens of "
                       "another size than config.json, %d pixels",
                       where, patch, pool, side);
    *pixels = tokens * side * side;
    return FV_OK;
}

static fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    l->pixels_min = l->patch * l->merge * l->patch * l->merge;
    FV_TRY(fv_config_require_resize(obj, where));
    return read_tokens(obj, where, 280, l, &l->pixels_max);
}

static const fv_tensor_names names = {
    "model.language_model.", "lm_head.",           "model.vision_tower.",
    "model.embed_vision.",   "linear_1.",          "linear_2.",
    "image_newline",         FV_TOWER_NAMES_GEMMA4};
static const fv_tensor_names names_unified = {"model.language_model.",
                                              "lm_head.",
                                              "model.vision_embedder.",
                                              "model.embed_vision.",
                                              "linear_1.",
                                              "linear_2.",
                                              "image_newline",
                                              FV_TOWER_NAMES_GEMMA4_UNIFIED};

#define GEMMA4                                                                                     \
    .layout = FV_LAYOUT_GEMMA4, .tied = true, .own_tower = true, .image_token = 258880,            \
    .strategy = "full", .feature_layer = -1,                                                       \
    .processor = {"Gemma4ImageProcessor", "Gemma4UnifiedImageProcessor"},                          \
    .read_sizes = read_sizes, .pixels = {.resample = 3, .std = {1, 1, 1}, .no_normalize = true}

const fv_family fv_family_gemma4 = {GEMMA4,
                                    .name = "gemma4",
                                    .architecture = "Gemma4ForConditionalGeneration",
                                    .text = "gemma4_text",
                                    .tower = "gemma4_vision",
                                    .names = &names,
                                    .parse = parse};

const fv_family fv_family_gemma4_unified = {GEMMA4,
                                            .name = "gemma4_unified",
                                            .architecture = "Gemma4UnifiedForConditionalGeneration",
                                            .text = "gemma4_unified_text",
                                            .tower = "gemma4_unified_vision",
                                            .tower_width = "mm_embed_dim",
                                            .names = &names_unified,
                                            .parse = parse_unified};
