/* Idefics3 (arXiv 2408.12637) and SmolVLM (arXiv 2504.05299): a SigLIP variant with its last
 * LayerNorm, scale_factor^2 patches in a token, and one linear layer as the connector. */
#include "model/families/keys.h"

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_vision_config *v = &cfg->vision;
    v->connector = FV_CONNECTOR_LINEAR;
    v->n_feature_layer = 1;
    v->feature_layer[0] = v->n_layer;
    v->merge = 2;
    FV_TRY(fv_json_i32(root, "scale_factor", where, 1, 64, &v->merge));
    if (fv_vision_side(v) % v->merge)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'scale_factor' (%d) does not divide vision_config's image_size / "
                       "patch_size (%d)",
                       where, v->merge, fv_vision_side(v));
    return FV_OK;
}

static fv_status read_longest_edge(const json_t *obj, const char *key, const char *where,
                                   int32_t *out) {
    const json_t *v = fv_config_member(obj, key);
    if (!v) return FV_OK;
    if (!json_is_object(v) || !fv_config_member(v, "longest_edge"))
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key '%s' must be {\"longest_edge\"}", where, key);
    return fv_config_read_edge(v, "longest_edge", where, out);
}

static fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *l) {
    int32_t tile = l->tile;
    l->longest_edge = 4 * l->tile;
    l->split = true;
    FV_TRY(read_longest_edge(obj, "size", where, &l->longest_edge));
    FV_TRY(read_longest_edge(obj, "max_image_size", where, &tile));
    FV_TRY(fv_json_bool(obj, "do_image_splitting", where, &l->split));
    FV_TRY(fv_config_require_resize(obj, where));
    if (tile == l->tile) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'max_image_size' is %d, but tiles are of the vision tower's %d", where,
                   tile, l->tile);
}

static const fv_tensor_names names = {.text = "model.text_model.",
                                      .head = "lm_head.",
                                      .tower = "model.vision_model.",
                                      .projector = "model.connector.modality_projection.",
                                      .linear_1 = "",
                                      .linear_2 = "",
                                      .newline = ""};

const fv_family fv_family_idefics3 = {
    .name = "idefics3",
    .architecture = "Idefics3ForConditionalGeneration",
    .layout = FV_LAYOUT_IDEFICS3,
    .text = "llama",
    .text_eps = 1e-5F,
    .tower = "idefics3_vision",
    .own_tower = true,
    .image_token = 128257,
    .names = &names,
    .parse = parse,
    .processor = {"Idefics3ImageProcessor"},
    .read_sizes = read_sizes,
    .pixels = {FV_PIXELS_LANCZOS},
};

const fv_family fv_family_smolvlm = {
    .name = "smolvlm",
    .architecture = "SmolVLMForConditionalGeneration",
    .layout = FV_LAYOUT_IDEFICS3,
    .text = "llama",
    .text_eps = 1e-5F,
    .tower = "idefics3_vision",
    .own_tower = true,
    .image_token = 128257,
    .names = &names,
    .parse = parse,
    .processor = {"SmolVLMImageProcessor"},
    .read_sizes = read_sizes,
    .pixels = {FV_PIXELS_LANCZOS},
};
