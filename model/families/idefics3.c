/* Idefics3 (arXiv 2408.12637) and SmolVLM (arXiv 2504.05299): a SigLIP tower of their own with its last
 * LayerNorm, features of scale_factor^2 patches in a token, one linear layer. */
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
};
