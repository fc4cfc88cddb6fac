/* Gemma 3 (arXiv 2503.19786): a SigLIP tower with its last LayerNorm; a token is the mean of a
 * square of patches, normed and multiplied by a matrix. Tokens of an image see each other.
 * ShieldGemma 2 (arXiv 2504.01081) is the same network, trained to answer Yes or No. */
#include "model/families/keys.h"

/* Parses mm_tokens_per_image, which must be a square number. */
static fv_status parse_tokens(const json_t *root, const char *where, fv_vision_config *v) {
    int32_t n = 256, side = 1;
    FV_TRY(fv_json_i32(root, "mm_tokens_per_image", where, 1, 1 << 20, &n));
    while (side * side < n) side++;
    v->merge = fv_vision_side(v) / side;
    if (side * side == n && v->merge > 0 && fv_vision_side(v) % side == 0) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'mm_tokens_per_image' is %d; it must be the square of a divisor of "
                   "vision_config's image_size / patch_size (%d)",
                   where, n, fv_vision_side(v));
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    v->connector = FV_CONNECTOR_LINEAR;
    v->n_feature_layer = 1;
    v->feature_layer[0] = v->n_layer;
    v->post_norm = v->mean_pool = v->projector_rms = true;
    v->projector_norm = FV_PROJECTOR_NORM_FEATURES;
    v->projector_eps = v->ln_eps;
    cfg->text.image_whole = true;
    return parse_tokens(root, where, v);
}

static fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    bool pan_and_scan = false;
    int32_t edge = 0;
    fv_layout_size size = {224, 224}; /* the class's */
    FV_TRY(fv_config_require_resize(obj, where));
    FV_TRY(fv_config_read_size(obj, where, &edge, &size));
    FV_TRY(fv_json_bool(obj, "do_pan_and_scan", where, &pan_and_scan));
    if (pan_and_scan)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'do_pan_and_scan' is true; the engine has no pan and scan", where);
    if (!edge && size.w == l->tile && size.h == l->tile) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'size' must be {\"height\": %d, \"width\": %d}, the vision tower's",
                   where, l->tile, l->tile);
}

static const fv_tensor_names names = {.inside = FV_TOWER_NAMES_GEMMA};

#define GEMMA3                                                                                     \
    .layout = FV_LAYOUT_GEMMA3, .text = "gemma3_text", .tied = true,                               \
    .tower = "siglip_vision_model", .image_token = 262144, .strategy = "full",                     \
    .feature_layer = -1, .names = &names, .parse = parse, .processor = {"Gemma3ImageProcessor"},   \
    .read_sizes = read_sizes,                                                                      \
    .pixels = {.resample = 2, .mean = {0.5F, 0.5F, 0.5F}, .std = {0.5F, 0.5F, 0.5F}}

const fv_family fv_family_gemma3 = {GEMMA3, .name = "gemma3",
                                    .architecture = "Gemma3ForConditionalGeneration"};

const fv_family fv_family_shieldgemma2 = {GEMMA3, .name = "shieldgemma2",
                                          .architecture = "ShieldGemma2ForImageClassification"};
