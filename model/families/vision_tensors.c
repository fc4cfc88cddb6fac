/* Tensors of the tower and of the connectors. */
#include "model/families/tensor_specs_internal.h"

#define V(m) offsetof(fv_vision_weights, m)
#define E(m) offsetof(fv_vision_layer, m)
#define P(m) offsetof(fv_projector_weights, m)

static const fv_spec_row connector[] = {
    {"norm.weight", P(norm), {DIM_NORMED}, FV_ROLE_NORM, CONNECTOR_NORM},
    {"norm.bias", P(norm_bias), {DIM_NORMED}, FV_ROLE_BIAS, CONNECTOR_NORM_BIAS},
    {"merger.weight", P(merger), {DIM_VD, DIM_MERGED}, FV_ROLE_LINEAR, CONNECTOR_MERGER},
    {"linear_1.weight", P(fc1), {DIM_BETWEEN, DIM_FEATURE}, FV_ROLE_LINEAR, CONNECTOR_MLP},
    {"linear_1.bias", P(fc1_bias), {DIM_BETWEEN}, FV_ROLE_BIAS, BIAS_MLP_CONNECTOR},
    {"linear_2.weight", P(fc2), {DIM_D, DIM_BETWEEN}, FV_ROLE_LINEAR, CONNECTOR_MLP},
    {"linear_2.bias", P(fc2_bias), {DIM_D}, FV_ROLE_BIAS, BIAS_MLP_CONNECTOR},
    {"peg.weight", P(peg), {DIM_D, DIM_ONE, DIM_THREE, DIM_THREE}, FV_ROLE_LINEAR, CONNECTOR_PEG},
    {"peg.bias", P(peg_bias), {DIM_D}, FV_ROLE_BIAS, CONNECTOR_PEG},
    {"proj.weight", P(fc1), {DIM_D, DIM_FEATURE}, FV_ROLE_LINEAR, CONNECTOR_LINEAR},
    {"proj.weight", P(fc1), {DIM_VD, DIM_D}, FV_ROLE_LINEAR, CONNECTOR_MEAN},
};

/* Names of the tower, tensors of the connector. */
static const fv_spec_row standard[] = {
    {"std_bias", P(std_bias), {DIM_VD}, FV_ROLE_BIAS, STANDARD},
    {"std_scale", P(std_scale), {DIM_VD}, FV_ROLE_NORM, STANDARD},
};

/* GLM's connector: its convolution is beside the tower in files. */
static const fv_spec_row glm_merger[] = {
    {"downsample.weight",
     P(merger),
     {DIM_D, DIM_VD, DIM_VMERGE, DIM_VMERGE},
     FV_ROLE_LINEAR,
     ALWAYS},
    {"downsample.bias", P(merger_bias), {DIM_D}, FV_ROLE_BIAS, ALWAYS},
};

static const fv_spec_row glm_connector[] = {
    {"proj.weight", P(fc1), {DIM_D, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"post_projection_norm.weight", P(norm), {DIM_D}, FV_ROLE_NORM, ALWAYS},
    {"post_projection_norm.bias", P(norm_bias), {DIM_D}, FV_ROLE_BIAS, ALWAYS},
    {"gate_proj.weight", P(gate), {DIM_GLM, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"up_proj.weight", P(up), {DIM_GLM, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"down_proj.weight", P(fc2), {DIM_D, DIM_GLM}, FV_ROLE_LINEAR, ALWAYS},
};

static const fv_spec_row deepstack[] = {
    {"norm.weight", P(norm), {DIM_MERGED}, FV_ROLE_NORM, ALWAYS},
    {"norm.bias", P(norm_bias), {DIM_MERGED}, FV_ROLE_BIAS, ALWAYS},
    {"linear_1.weight", P(fc1), {DIM_MERGED, DIM_MERGED}, FV_ROLE_LINEAR, ALWAYS},
    {"linear_1.bias", P(fc1_bias), {DIM_MERGED}, FV_ROLE_BIAS, ALWAYS},
    {"linear_2.weight", P(fc2), {DIM_D, DIM_MERGED}, FV_ROLE_LINEAR, ALWAYS},
    {"linear_2.bias", P(fc2_bias), {DIM_D}, FV_ROLE_BIAS, ALWAYS},
};

static const fv_spec_row newline[] = {
    {"newline", P(newline), {DIM_D}, FV_ROLE_EMBEDDING, NEWLINE},
};

static const fv_spec_row vision_front[] = {
    {"embeddings.class_embedding", V(cls), {DIM_VD}, FV_ROLE_EMBEDDING, CLASS_TOKEN},
    {"embeddings.class_embedding",
     V(cls),
     {DIM_ONE, DIM_ONE, DIM_VD},
     FV_ROLE_EMBEDDING,
     CLASS_TOKEN_3D},
    {"embeddings.patch_embedding.weight",
     V(patch),
     {DIM_VD, DIM_VCHANNEL, DIM_VPATCH, DIM_VPATCH},
     FV_ROLE_LINEAR,
     PATCH_FRAME},
    {"embeddings.patch_embedding.weight",
     V(patch),
     {DIM_VD, DIM_VCHANNEL, DIM_TWO, DIM_VPATCH, DIM_VPATCH},
     FV_ROLE_LINEAR,
     PATCH_FRAMES},
    {"embeddings.patch_embedding.weight",
     V(patch),
     {DIM_VD, DIM_VPIXELS},
     FV_ROLE_LINEAR,
     PATCH_ROWS},
    {"patch_ln1.weight", V(pixel_norm), {DIM_VPIXELS}, FV_ROLE_NORM, PATCH_NORMS},
    {"patch_ln1.bias", V(pixel_norm_bias), {DIM_VPIXELS}, FV_ROLE_BIAS, PATCH_NORMS},
    {"patch_ln2.weight", V(patch_norm), {DIM_VD}, FV_ROLE_NORM, PATCH_NORMS},
    {"patch_ln2.bias", V(patch_norm_bias), {DIM_VD}, FV_ROLE_BIAS, PATCH_NORMS},
    {"pos_norm.weight", V(sum_norm), {DIM_VD}, FV_ROLE_NORM, PATCH_NORMS},
    {"pos_norm.bias", V(sum_norm_bias), {DIM_VD}, FV_ROLE_BIAS, PATCH_NORMS},
    {"embeddings.position_embedding.weight",
     V(position),
     {DIM_TWO, DIM_VAXIS, DIM_VD},
     FV_ROLE_EMBEDDING,
     POSITION_AXES},
    {"embeddings.position_embedding.weight",
     V(position),
     {DIM_VAXIS, DIM_TWO, DIM_VD},
     FV_ROLE_EMBEDDING,
     POSITION_PAIRS},
    {"embeddings.patch_embedding.bias", V(patch_bias), {DIM_VD}, FV_ROLE_BIAS, PATCH_BIAS},
    {"embeddings.position_embedding.weight",
     V(position),
     {DIM_VPOSITION, DIM_VD},
     FV_ROLE_EMBEDDING,
     POSITION},
    {"embeddings.position_embedding.weight",
     V(position),
     {DIM_ONE, DIM_VPOSITION, DIM_VD},
     FV_ROLE_EMBEDDING,
     POSITION_3D},
    /* Every file spells these names without the "e". */
    {"pre_layrnorm.weight", V(pre_norm), {DIM_VD}, FV_ROLE_NORM, PRE_NORM},
    {"pre_layrnorm.bias", V(pre_norm_bias), {DIM_VD}, FV_ROLE_BIAS, PRE_NORM_BIAS},
    {"post_layernorm.weight", V(post_norm), {DIM_VD}, FV_ROLE_NORM, POST_NORM},
    {"post_layernorm.bias", V(post_norm_bias), {DIM_VD}, FV_ROLE_BIAS, POST_NORM_BIAS},
    {"post_conv_layernorm.weight", V(pre_norm), {DIM_VD}, FV_ROLE_NORM, NORM_PATCHES},
};

/* Bounds of a linear layer, numbers without dimensions. */
#define CLIP(name, member)                                                                         \
    {name "input_min", E(member.in_min), {DIM_NONE}, FV_ROLE_LOWER, CLIPPED},                      \
        {name "input_max", E(member.in_max), {DIM_NONE}, FV_ROLE_UPPER, CLIPPED},                  \
        {name "output_min", E(member.out_min), {DIM_NONE}, FV_ROLE_LOWER, CLIPPED}, {              \
        name "output_max", E(member.out_max), {DIM_NONE}, FV_ROLE_UPPER, CLIPPED                   \
    }

/* fv_specs_vision_layer: the first FV_SPECS_ASKED rows are the inputs of attention probabilities. */
static const fv_spec_row vision_layer[] = {
    {"layer_norm1.weight", E(norm1), {DIM_VD}, FV_ROLE_NORM, ALWAYS},
    {"layer_norm1.bias", E(norm1_bias), {DIM_VD}, FV_ROLE_BIAS, LAYER_BIAS},
    {"self_attn.q_proj.weight", E(q), {DIM_VD, DIM_VD}, FV_ROLE_LINEAR, VISION_QKV},
    {"self_attn.q_proj.bias", E(q_bias), {DIM_VD}, FV_ROLE_BIAS, VISION_BIAS_QKV},
    {"self_attn.k_proj.weight", E(k), {DIM_VD, DIM_VD}, FV_ROLE_LINEAR, VISION_QKV},
    {"self_attn.k_proj.bias", E(k_bias), {DIM_VD}, FV_ROLE_BIAS, VISION_BIAS_QKV},
    {"self_attn.q_norm.weight", E(q_norm), {DIM_VD}, FV_ROLE_NORM, VISION_QK_NORM},
    {"self_attn.k_norm.weight", E(k_norm), {DIM_VD}, FV_ROLE_NORM, VISION_QK_NORM},
    {"attn_post_norm.weight", E(attn_post_norm), {DIM_VD}, FV_ROLE_NORM, VISION_POST_NORMS},
    {"mlp_post_norm.weight", E(mlp_post_norm), {DIM_VD}, FV_ROLE_NORM, VISION_POST_NORMS},
    {"self_attn.q_norm.weight", E(q_norm), {DIM_VHEAD}, FV_ROLE_NORM, VISION_QK_NORM_HEADS},
    {"self_attn.k_norm.weight", E(k_norm), {DIM_VHEAD}, FV_ROLE_NORM, VISION_QK_NORM_HEADS},
    {"self_attn.qkv.weight", E(qkv), {DIM_V3D, DIM_VD}, FV_ROLE_LINEAR, VISION_FUSED},
    {"self_attn.qkv.bias", E(qkv_bias), {DIM_V3D}, FV_ROLE_BIAS, VISION_BIAS_FUSED},
    {"self_attn.v_proj.weight", E(v), {DIM_VD, DIM_VD}, FV_ROLE_LINEAR, VISION_QKV},
    {"self_attn.v_proj.bias", E(v_bias), {DIM_VD}, FV_ROLE_BIAS, VISION_BIAS_QKV},
    {"self_attn.out_proj.weight", E(o), {DIM_VD, DIM_VD}, FV_ROLE_LINEAR, ALWAYS},
    {"self_attn.out_proj.bias", E(o_bias), {DIM_VD}, FV_ROLE_BIAS, VISION_BIAS_O},
    {"layer_norm2.weight", E(norm2), {DIM_VD}, FV_ROLE_NORM, ALWAYS},
    {"layer_norm2.bias", E(norm2_bias), {DIM_VD}, FV_ROLE_BIAS, LAYER_BIAS},
    {"mlp.fc1.weight", E(fc1), {DIM_VM, DIM_VD}, FV_ROLE_LINEAR, VISION_PLAIN},
    {"mlp.fc1.bias", E(fc1_bias), {DIM_VM}, FV_ROLE_BIAS, VISION_PLAIN_BIAS},
    {"mlp.fc2.weight", E(fc2), {DIM_VD, DIM_VM}, FV_ROLE_LINEAR, VISION_PLAIN},
    {"mlp.fc2.bias", E(fc2_bias), {DIM_VD}, FV_ROLE_BIAS, VISION_PLAIN_BIAS},
    {"mlp.gate_proj.weight", E(gate), {DIM_VM, DIM_VD}, FV_ROLE_LINEAR, VISION_GATED},
    {"mlp.gate_proj.bias", E(gate_bias), {DIM_VM}, FV_ROLE_BIAS, VISION_GATED_BIAS},
    {"mlp.up_proj.weight", E(fc1), {DIM_VM, DIM_VD}, FV_ROLE_LINEAR, VISION_GATED},
    {"mlp.up_proj.bias", E(fc1_bias), {DIM_VM}, FV_ROLE_BIAS, VISION_GATED_BIAS},
    {"mlp.down_proj.weight", E(fc2), {DIM_VD, DIM_VM}, FV_ROLE_LINEAR, VISION_GATED},
    {"mlp.down_proj.bias", E(fc2_bias), {DIM_VD}, FV_ROLE_BIAS, VISION_GATED_BIAS},
    CLIP("self_attn.q_proj.", q_clip),
    CLIP("self_attn.k_proj.", k_clip),
    CLIP("self_attn.v_proj.", v_clip),
    CLIP("self_attn.out_proj.", o_clip),
    CLIP("mlp.gate_proj.", gate_clip),
    CLIP("mlp.up_proj.", fc1_clip),
    CLIP("mlp.down_proj.", fc2_clip),
    {"scale1", E(scale1), {DIM_VD}, FV_ROLE_NORM, LAYER_SCALE},
    {"scale2", E(scale2), {DIM_VD}, FV_ROLE_NORM, LAYER_SCALE},
};

static const fv_spec_row vision_back[] = {
    {"post_layernorm.weight", 0, {DIM_VD}, FV_ROLE_NORM, UNUSED_POST_NORM},
    {"post_layernorm.bias", 0, {DIM_VD}, FV_ROLE_BIAS, UNUSED_POST_NORM},
    {"embeddings.packing_position_embedding.weight",
     0,
     {DIM_VPOSITION, DIM_VD},
     FV_ROLE_EMBEDDING,
     UNUSED_POSITIONS},
    {"embeddings.mask_token", 0, {DIM_ONE, DIM_ONE, DIM_VD}, FV_ROLE_EMBEDDING, UNUSED_MASK},
    /* SigLIP's pooling head */
    {"head.probe", 0, {DIM_ONE, DIM_ONE, DIM_VD}, FV_ROLE_EMBEDDING, UNUSED_HEAD},
    {"head.attention.in_proj_weight", 0, {DIM_V3D, DIM_VD}, FV_ROLE_LINEAR, UNUSED_HEAD},
    {"head.attention.in_proj_bias", 0, {DIM_V3D}, FV_ROLE_BIAS, UNUSED_HEAD},
    {"head.attention.out_proj.weight", 0, {DIM_VD, DIM_VD}, FV_ROLE_LINEAR, UNUSED_HEAD},
    {"head.attention.out_proj.bias", 0, {DIM_VD}, FV_ROLE_BIAS, UNUSED_HEAD},
    {"head.layernorm.weight", 0, {DIM_VD}, FV_ROLE_NORM, UNUSED_HEAD},
    {"head.layernorm.bias", 0, {DIM_VD}, FV_ROLE_BIAS, UNUSED_HEAD},
    {"head.mlp.fc1.weight", 0, {DIM_VM, DIM_VD}, FV_ROLE_LINEAR, UNUSED_HEAD},
    {"head.mlp.fc1.bias", 0, {DIM_VM}, FV_ROLE_BIAS, UNUSED_HEAD},
    {"head.mlp.fc2.weight", 0, {DIM_VD, DIM_VM}, FV_ROLE_LINEAR, UNUSED_HEAD},
    {"head.mlp.fc2.bias", 0, {DIM_VD}, FV_ROLE_BIAS, UNUSED_HEAD},
};

_Static_assert(sizeof vision_layer / sizeof *vision_layer <= FV_SPECS_PER_LAYER,
               "rows of a tower layer");

const fv_spec_rows fv_specs_connector = {connector, sizeof connector / sizeof *connector};
const fv_spec_rows fv_specs_standard = {standard, sizeof standard / sizeof *standard};
const fv_spec_rows fv_specs_newline = {newline, sizeof newline / sizeof *newline};
const fv_spec_rows fv_specs_deepstack = {deepstack, sizeof deepstack / sizeof *deepstack};
const fv_spec_rows fv_specs_glm_connector = {glm_connector,
                                             sizeof glm_connector / sizeof *glm_connector};
const fv_spec_rows fv_specs_glm_merger = {glm_merger, sizeof glm_merger / sizeof *glm_merger};
const fv_spec_rows fv_specs_vision_front = {vision_front,
                                            sizeof vision_front / sizeof *vision_front};
const fv_spec_rows fv_specs_vision_layer = {vision_layer,
                                            sizeof vision_layer / sizeof *vision_layer};
const fv_spec_rows fv_specs_vision_back = {vision_back, sizeof vision_back / sizeof *vision_back};
