/* Tables of tensors, and their expansion for one config.
 *
 * A row holds a name, the member of weights.h that it fills, its sizes as symbols, and the
 * condition under which it exists. Sizes are symbols so that an error can name the config keys
 * behind an expected shape. */
#include "model/families/tensor_specs.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum dim {
    DIM_NONE = 0,
    DIM_D, /* the text model */
    DIM_M,
    DIM_VOCAB,
    DIM_Q,
    DIM_KV,
    DIM_HEAD,
    DIM_VPIXELS, /* numbers of a patch */
    DIM_VAXIS,   /* positions of an axis */
    DIM_QKV,     /* rows of fused tensors */
    DIM_2M,
    DIM_EXPERTS,
    DIM_SHARED, /* the shared expert */
    DIM_E,      /* an expert's width, and twice that */
    DIM_2E,
    DIM_VD, /* the tower */
    DIM_VM,
    DIM_VPOSITION,
    DIM_VCHANNEL,
    DIM_VPATCH,
    DIM_TWO,
    DIM_THREE,
    DIM_V3D,
    DIM_ONE,
    DIM_FEATURE, /* the connector's input: features of a token, or the merger's output */
    DIM_NORMED,
    DIM_MERGED,
    DIM_INPUT, /* per-layer embeddings: of a layer, of all layers */
    DIM_INPUTS,
    DIM_DELTA, /* recurrent layers: queries, keys and values, values, heads, taps, a head's values */
    DIM_DELTA_V,
    DIM_DELTA_HEADS,
    DIM_DELTA_TAPS,
    DIM_DELTA_D,
    DIM_QUERY,   /* queries, with their gates if there are any */
    DIM_BETWEEN, /* the connector's two linear layers */
    DIM_VHEAD,   /* GLM: a head of the tower, patches of a token's side, the connector's FFN */
    DIM_VMERGE,
    DIM_GLM,
} dim;

typedef enum when {
    ALWAYS = 0,
    BIAS_QKV,
    BIAS_O,
    BIAS_MLP,
    QK_NORM,
    KEYS, /* q, k and v apart, in layers with keys of their own */
    KEY_NORM,
    INPUTS,       /* per-layer embeddings */
    LAYER_NUMBER, /* a layer's output has a factor */
    VALUES,       /* apart, and in layers in which values are not keys */
    APART,        /* q, k and v, gate and up as separate tensors, */
    FUSED,        /* or together */
    DENSE,        /* layers with one FFN */
    DENSE_APART,  /* and gate and up apart */
    SPARSE,
    SPARSE_PLAIN, /* whose matrices are [out, in], or transposed */
    SPARSE_TRANSPOSED,
    SIGMOID,      /* the router has a bias */
    BESIDE,       /* layers with experts beside the FFN */
    SHARED_GATED, /* the expert that every token goes through, and its gate, */
    SHARED_PLAIN, /* or without one, under GLM's names */
    PRE_NORMS,    /* norms of the text model's layers: before attention and FFN only, */
    POST_NORMS,   /* or also after them, */
    OUTPUT_NORMS, /* or beside the former, under GLM's names */
    FUSED_FFN,    /* gate and up together */
    CONNECTOR_MLP,
    BIAS_MLP_CONNECTOR,
    CONNECTOR_LINEAR,
    CONNECTOR_MEAN, /* a single linear layer on means, stored transposed */
    CONNECTOR_NORM,
    STANDARD, /* means of patches have a bias and a factor */
    CONNECTOR_NORM_BIAS,
    CONNECTOR_MERGER,
    CONNECTOR_PEG,
    NEWLINE,
    CLASS_TOKEN,
    CLASS_TOKEN_3D, /* with two leading dimensions of 1, as in InternVL */
    POSITION,
    POSITION_3D,    /* with one */
    POSITION_AXES,  /* rows of columns, then of rows, */
    POSITION_PAIRS, /* or both in turn */
    LAYER_BIAS,     /* biases of the layers' norms */
    PRE_NORM_BIAS,
    VISION_QKV, /* q, k and v as separate tensors */
    VISION_BIAS_QKV,
    VISION_FUSED,
    VISION_BIAS_FUSED,
    VISION_BIAS_O,
    VISION_PLAIN, /* FFN without a gate, its biases, and the gated FFN */
    VISION_PLAIN_BIAS,
    VISION_GATED,
    VISION_GATED_BIAS,
    VISION_QK_NORM,
    VISION_POST_NORMS,
    VISION_QK_NORM_HEADS,
    CLIPPED,
    LAYER_SCALE,
    PATCH_FRAME,
    PATCH_ROWS, /* as the matrix of a linear layer */
    PATCH_NORMS,
    PATCH_FRAMES, /* patches of two frames */
    PATCH_BIAS,
    PRE_NORM,
    NORM_PATCHES,
    POST_NORM,
    POST_NORM_BIAS,
    UNUSED_POST_NORM, /* in files, but unused */
    UNUSED_HEAD,
    UNUSED_MASK,
    UNUSED_POSITIONS,
} when;

typedef struct row {
    const char *name;
    size_t offset;
    dim dims[FV_TENSOR_SPECS_MAX_DIMS];
    fv_tensor_role role;
    when when;
} row;

#define T(m) offsetof(fv_text_weights, m)
#define L(m) offsetof(fv_text_layer, m)
#define F(m) offsetof(fv_text_fused, m)
#define X(m) offsetof(fv_text_expert, m)
#define V(m) offsetof(fv_vision_weights, m)
#define E(m) offsetof(fv_vision_layer, m)
#define P(m) offsetof(fv_projector_weights, m)

static const row text_front[] = {
    {"embed_tokens.weight", T(embed), {DIM_VOCAB, DIM_D}, FV_ROLE_EMBEDDING, ALWAYS},
    {"embed_tokens_per_layer.weight",
     T(input_table),
     {DIM_VOCAB, DIM_INPUTS},
     FV_ROLE_EMBEDDING,
     INPUTS},
    {"per_layer_model_projection.weight",
     T(input_project),
     {DIM_INPUTS, DIM_D},
     FV_ROLE_EXACT,
     INPUTS},
    {"per_layer_projection_norm.weight", T(input_norm), {DIM_INPUT}, FV_ROLE_NORM, INPUTS},
};

static const row text_layer[] = {
    {"input_layernorm.weight", L(attn_norm), {DIM_D}, FV_ROLE_NORM, ALWAYS},
    {"self_attn.q_proj.weight", L(q), {DIM_QUERY, DIM_D}, FV_ROLE_QUERY, APART},
    {"self_attn.k_proj.weight", L(k), {DIM_KV, DIM_D}, FV_ROLE_LINEAR, KEYS},
    {"self_attn.v_proj.weight", L(v), {DIM_KV, DIM_D}, FV_ROLE_LINEAR, VALUES},
    {"self_attn.o_proj.weight", L(o), {DIM_D, DIM_Q}, FV_ROLE_LINEAR, ALWAYS},
    {"self_attn.q_proj.bias", L(q_bias), {DIM_QUERY}, FV_ROLE_BIAS, BIAS_QKV},
    {"self_attn.k_proj.bias", L(k_bias), {DIM_KV}, FV_ROLE_BIAS, BIAS_QKV},
    {"self_attn.v_proj.bias", L(v_bias), {DIM_KV}, FV_ROLE_BIAS, BIAS_QKV},
    {"self_attn.o_proj.bias", L(o_bias), {DIM_D}, FV_ROLE_BIAS, BIAS_O},
    {"self_attn.q_norm.weight", L(q_norm), {DIM_HEAD}, FV_ROLE_NORM, QK_NORM},
    {"self_attn.k_norm.weight", L(k_norm), {DIM_HEAD}, FV_ROLE_NORM, KEY_NORM},
    {"per_layer_input_gate.weight", L(input_gate), {DIM_INPUT, DIM_D}, FV_ROLE_LINEAR, INPUTS},
    {"per_layer_projection.weight", L(input_out), {DIM_D, DIM_INPUT}, FV_ROLE_LINEAR, INPUTS},
    {"post_per_layer_input_norm.weight", L(input_norm), {DIM_D}, FV_ROLE_NORM, INPUTS},
    {"layer_scalar", L(scale), {DIM_ONE}, FV_ROLE_NORM, LAYER_NUMBER},
    {"post_attention_layernorm.weight", L(mlp_norm), {DIM_D}, FV_ROLE_NORM, PRE_NORMS},
    {"post_attention_layernorm.weight", L(attn_post_norm), {DIM_D}, FV_ROLE_NORM, POST_NORMS},
    {"post_self_attn_layernorm.weight", L(attn_post_norm), {DIM_D}, FV_ROLE_NORM, OUTPUT_NORMS},
    {"post_mlp_layernorm.weight", L(mlp_post_norm), {DIM_D}, FV_ROLE_NORM, OUTPUT_NORMS},
    {"pre_feedforward_layernorm.weight", L(mlp_norm), {DIM_D}, FV_ROLE_NORM, POST_NORMS},
    {"post_feedforward_layernorm.weight", L(mlp_post_norm), {DIM_D}, FV_ROLE_NORM, POST_NORMS},
    {"mlp.gate_proj.weight", L(gate), {DIM_M, DIM_D}, FV_ROLE_LINEAR, DENSE_APART},
    {"mlp.up_proj.weight", L(up), {DIM_M, DIM_D}, FV_ROLE_LINEAR, DENSE_APART},
    {"mlp.down_proj.weight", L(down), {DIM_D, DIM_M}, FV_ROLE_LINEAR, DENSE},
    {"mlp.gate_proj.bias", L(gate_bias), {DIM_M}, FV_ROLE_BIAS, BIAS_MLP},
    {"mlp.up_proj.bias", L(up_bias), {DIM_M}, FV_ROLE_BIAS, BIAS_MLP},
    {"mlp.down_proj.bias", L(down_bias), {DIM_D}, FV_ROLE_BIAS, BIAS_MLP},
    {"mlp.gate.weight", L(router), {DIM_EXPERTS, DIM_D}, FV_ROLE_ROUTER, SPARSE},
    {"mlp.experts.gate_up_proj",
     L(experts_in),
     {DIM_EXPERTS, DIM_2E, DIM_D},
     FV_ROLE_EXPERTS,
     SPARSE_PLAIN},
    {"mlp.experts.down_proj",
     L(experts_out),
     {DIM_EXPERTS, DIM_D, DIM_E},
     FV_ROLE_EXPERTS,
     SPARSE_PLAIN},
    {"mlp.experts.gate_up_proj",
     L(experts_in),
     {DIM_EXPERTS, DIM_D, DIM_2E},
     FV_ROLE_EXPERTS_TRANSPOSED,
     SPARSE_TRANSPOSED},
    {"mlp.experts.down_proj",
     L(experts_out),
     {DIM_EXPERTS, DIM_E, DIM_D},
     FV_ROLE_EXPERTS_TRANSPOSED,
     SPARSE_TRANSPOSED},
    {"mlp.shared_expert.gate_proj.weight",
     L(gate),
     {DIM_SHARED, DIM_D},
     FV_ROLE_LINEAR,
     SHARED_GATED},
    {"mlp.shared_expert.up_proj.weight", L(up), {DIM_SHARED, DIM_D}, FV_ROLE_LINEAR, SHARED_GATED},
    {"mlp.shared_expert.down_proj.weight",
     L(down),
     {DIM_D, DIM_SHARED},
     FV_ROLE_LINEAR,
     SHARED_GATED},
    {"mlp.shared_expert_gate.weight",
     L(shared_gate),
     {DIM_ONE, DIM_D},
     FV_ROLE_EXACT,
     SHARED_GATED},
    {"mlp.gate.e_score_correction_bias", L(router_bias), {DIM_EXPERTS}, FV_ROLE_BIAS, SIGMOID},
    {"mlp.shared_experts.gate_proj.weight",
     L(gate),
     {DIM_SHARED, DIM_D},
     FV_ROLE_LINEAR,
     SHARED_PLAIN},
    {"mlp.shared_experts.up_proj.weight", L(up), {DIM_SHARED, DIM_D}, FV_ROLE_LINEAR, SHARED_PLAIN},
    {"mlp.shared_experts.down_proj.weight",
     L(down),
     {DIM_D, DIM_SHARED},
     FV_ROLE_LINEAR,
     SHARED_PLAIN},
    {"router.proj.weight", L(router), {DIM_EXPERTS, DIM_D}, FV_ROLE_ROUTER, BESIDE},
    {"router.scale", L(router_norm), {DIM_D}, FV_ROLE_NORM, BESIDE},
    {"router.per_expert_scale", L(expert_scale), {DIM_EXPERTS}, FV_ROLE_NORM, BESIDE},
    {"pre_feedforward_layernorm_2.weight", L(experts_norm), {DIM_D}, FV_ROLE_NORM, BESIDE},
    {"post_feedforward_layernorm_1.weight", L(dense_post_norm), {DIM_D}, FV_ROLE_NORM, BESIDE},
    {"post_feedforward_layernorm_2.weight", L(experts_post_norm), {DIM_D}, FV_ROLE_NORM, BESIDE},
    {"experts.gate_up_proj", L(experts_in), {DIM_EXPERTS, DIM_2E, DIM_D}, FV_ROLE_EXPERTS, BESIDE},
    {"experts.down_proj", L(experts_out), {DIM_EXPERTS, DIM_D, DIM_E}, FV_ROLE_EXPERTS, BESIDE},
};

static const row text_fused[] = {
    {"self_attn.qkv_proj.weight", F(qkv), {DIM_QKV, DIM_D}, FV_ROLE_LINEAR, FUSED},
    {"mlp.gate_up_proj.weight", F(gate_up), {DIM_2M, DIM_D}, FV_ROLE_LINEAR, FUSED_FFN},
};

/* The tensors of an expert, where files have each expert by itself. */
static const row text_expert[] = {
    {"gate_proj.weight", X(gate), {DIM_E, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"up_proj.weight", X(up), {DIM_E, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"down_proj.weight", X(down), {DIM_D, DIM_E}, FV_ROLE_LINEAR, ALWAYS},
};

static const row recurrent_layer[] = {
    {"input_layernorm.weight", L(attn_norm), {DIM_D}, FV_ROLE_NORM, ALWAYS},
    {"linear_attn.in_proj_qkv.weight", L(delta_qkv), {DIM_DELTA, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"linear_attn.in_proj_z.weight", L(delta_z), {DIM_DELTA_V, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"linear_attn.in_proj_b.weight", L(delta_b), {DIM_DELTA_HEADS, DIM_D}, FV_ROLE_EXACT, ALWAYS},
    {"linear_attn.in_proj_a.weight", L(delta_a), {DIM_DELTA_HEADS, DIM_D}, FV_ROLE_EXACT, ALWAYS},
    {"linear_attn.conv1d.weight",
     L(delta_conv),
     {DIM_DELTA, DIM_ONE, DIM_DELTA_TAPS},
     FV_ROLE_EXACT,
     ALWAYS},
    {"linear_attn.A_log", L(delta_log_rate), {DIM_DELTA_HEADS}, FV_ROLE_BIAS, ALWAYS},
    {"linear_attn.dt_bias", L(delta_shift), {DIM_DELTA_HEADS}, FV_ROLE_BIAS, ALWAYS},
    {"linear_attn.norm.weight", L(delta_norm), {DIM_DELTA_D}, FV_ROLE_NORM, ALWAYS},
    {"linear_attn.out_proj.weight", L(delta_out), {DIM_D, DIM_DELTA_V}, FV_ROLE_LINEAR, ALWAYS},
    {"post_attention_layernorm.weight", L(mlp_norm), {DIM_D}, FV_ROLE_NORM, ALWAYS},
    {"mlp.gate_proj.weight", L(gate), {DIM_M, DIM_D}, FV_ROLE_LINEAR, DENSE},
    {"mlp.up_proj.weight", L(up), {DIM_M, DIM_D}, FV_ROLE_LINEAR, DENSE},
    {"mlp.down_proj.weight", L(down), {DIM_D, DIM_M}, FV_ROLE_LINEAR, DENSE},
    {"mlp.gate.weight", L(router), {DIM_EXPERTS, DIM_D}, FV_ROLE_ROUTER, SPARSE},
    {"mlp.experts.gate_up_proj",
     L(experts_in),
     {DIM_EXPERTS, DIM_2E, DIM_D},
     FV_ROLE_EXPERTS,
     SPARSE},
    {"mlp.experts.down_proj", L(experts_out), {DIM_EXPERTS, DIM_D, DIM_E}, FV_ROLE_EXPERTS, SPARSE},
    {"mlp.shared_expert.gate_proj.weight",
     L(gate),
     {DIM_SHARED, DIM_D},
     FV_ROLE_LINEAR,
     SHARED_GATED},
    {"mlp.shared_expert.up_proj.weight", L(up), {DIM_SHARED, DIM_D}, FV_ROLE_LINEAR, SHARED_GATED},
    {"mlp.shared_expert.down_proj.weight",
     L(down),
     {DIM_D, DIM_SHARED},
     FV_ROLE_LINEAR,
     SHARED_GATED},
    {"mlp.shared_expert_gate.weight",
     L(shared_gate),
     {DIM_ONE, DIM_D},
     FV_ROLE_EXACT,
     SHARED_GATED},
};

static const row text_back[] = {
    {"norm.weight", T(norm), {DIM_D}, FV_ROLE_NORM, ALWAYS},
};

static const row text_head[] = {
    {"weight", T(head), {DIM_VOCAB, DIM_D}, FV_ROLE_HEAD, ALWAYS},
};

static const row connector[] = {
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
static const row standard[] = {
    {"std_bias", P(std_bias), {DIM_VD}, FV_ROLE_BIAS, STANDARD},
    {"std_scale", P(std_scale), {DIM_VD}, FV_ROLE_NORM, STANDARD},
};

/* GLM's connector: its convolution is beside the tower in files. */
static const row glm_merger[] = {
    {"downsample.weight",
     P(merger),
     {DIM_D, DIM_VD, DIM_VMERGE, DIM_VMERGE},
     FV_ROLE_LINEAR,
     ALWAYS},
    {"downsample.bias", P(merger_bias), {DIM_D}, FV_ROLE_BIAS, ALWAYS},
};

static const row glm_connector[] = {
    {"proj.weight", P(fc1), {DIM_D, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"post_projection_norm.weight", P(norm), {DIM_D}, FV_ROLE_NORM, ALWAYS},
    {"post_projection_norm.bias", P(norm_bias), {DIM_D}, FV_ROLE_BIAS, ALWAYS},
    {"gate_proj.weight", P(gate), {DIM_GLM, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"up_proj.weight", P(up), {DIM_GLM, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"down_proj.weight", P(fc2), {DIM_D, DIM_GLM}, FV_ROLE_LINEAR, ALWAYS},
};

static const row deepstack[] = {
    {"norm.weight", P(norm), {DIM_MERGED}, FV_ROLE_NORM, ALWAYS},
    {"norm.bias", P(norm_bias), {DIM_MERGED}, FV_ROLE_BIAS, ALWAYS},
    {"linear_1.weight", P(fc1), {DIM_MERGED, DIM_MERGED}, FV_ROLE_LINEAR, ALWAYS},
    {"linear_1.bias", P(fc1_bias), {DIM_MERGED}, FV_ROLE_BIAS, ALWAYS},
    {"linear_2.weight", P(fc2), {DIM_D, DIM_MERGED}, FV_ROLE_LINEAR, ALWAYS},
    {"linear_2.bias", P(fc2_bias), {DIM_D}, FV_ROLE_BIAS, ALWAYS},
};

static const row newline[] = {
    {"newline", P(newline), {DIM_D}, FV_ROLE_EMBEDDING, NEWLINE},
};

static const row vision_front[] = {
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

/* The first ASKED rows are the inputs of a layer's attention probabilities. */
enum { ASKED = 10 };
static const row vision_layer[] = {
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

static const row vision_back[] = {
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

typedef struct builder {
    const fv_model_config *cfg;
    bool whole;
    fv_tensor_spec *entry;
    int32_t n;
} builder;

/* Dimensions of a head of a text layer, and its heads of keys and values. */
static int64_t head_of(const fv_text_config *t, int32_t layer) {
    return t->slide_d && t->slides[layer] ? t->slide_d : t->d_head;
}

static int64_t kv_of(const fv_text_config *t, int32_t layer) {
    return !t->slide_d ? t->n_kv : t->slides[layer] ? t->slide_kv : t->full_kv;
}

static int64_t size_of(const fv_model_config *cfg, dim d, int32_t layer, const char **key) {
    const fv_text_config *t = &cfg->text;
    const fv_vision_config *v = &cfg->vision;
    int64_t side = fv_vision_side(v);
    switch (d) {
    case DIM_NONE: break;
    case DIM_D: *key = "hidden_size"; return t->d_model;
    case DIM_M: *key = "intermediate_size"; return fv_text_dense_width(t, layer);
    case DIM_SHARED:
        *key = t->shared_gated ? "shared_expert_intermediate_size"
                               : "n_shared_experts * moe_intermediate_size";
        return t->d_shared;
    case DIM_VOCAB: *key = "vocab_size"; return t->vocab;
    case DIM_Q: *key = "num_attention_heads * head_dim"; return t->n_head * head_of(t, layer);
    case DIM_QUERY:
        *key = t->gated_attention ? "2 * num_attention_heads * head_dim"
                                  : "num_attention_heads * head_dim";
        return (t->gated_attention ? 2 : 1) * t->n_head * head_of(t, layer);
    case DIM_DELTA:
        *key = "2 * linear_num_key_heads * linear_key_head_dim + linear_num_value_heads * "
               "linear_value_head_dim";
        return fv_recurrent_width(&t->recurrent);
    case DIM_DELTA_V:
        *key = "linear_num_value_heads * linear_value_head_dim";
        return (int64_t)t->recurrent.n_value * t->recurrent.d_value;
    case DIM_DELTA_HEADS: *key = "linear_num_value_heads"; return t->recurrent.n_value;
    case DIM_DELTA_TAPS: *key = "linear_conv_kernel_dim"; return t->recurrent.taps;
    case DIM_DELTA_D: *key = "linear_value_head_dim"; return t->recurrent.d_value;
    case DIM_KV:
        *key = "num_key_value_heads * head_dim";
        return kv_of(t, layer) * head_of(t, layer);
    case DIM_HEAD: *key = "head_dim"; return head_of(t, layer);
    case DIM_INPUT: *key = "hidden_size_per_layer_input"; return t->d_input;
    case DIM_INPUTS:
        *key = "num_hidden_layers * hidden_size_per_layer_input";
        return (int64_t)fv_text_layers(t) * t->d_input;
    case DIM_VPIXELS: *key = "3 * vision_config.patch_size^2"; return fv_vision_patch_width(v);
    case DIM_VAXIS: *key = "vision_config's number of positions"; return v->position_axis;
    case DIM_QKV:
        *key = "(num_attention_heads + 2 * num_key_value_heads) * head_dim";
        return ((int64_t)t->n_head + 2 * (int64_t)t->n_kv) * t->d_head;
    case DIM_2M: *key = "2 * intermediate_size"; return 2 * (int64_t)t->d_ffn;
    case DIM_EXPERTS: *key = "num_experts"; return t->n_expert;
    case DIM_E: *key = "moe_intermediate_size"; return t->d_expert;
    case DIM_2E: *key = "2 * moe_intermediate_size"; return 2 * (int64_t)t->d_expert;
    case DIM_V3D: *key = "3 * vision_config.hidden_size"; return 3 * (int64_t)v->d_model;
    case DIM_ONE: *key = "1"; return 1;
    case DIM_THREE: *key = "3"; return 3;
    case DIM_TWO: *key = "vision_config.temporal_patch_size"; return 2;
    case DIM_VD: *key = "vision_config.hidden_size"; return v->d_model;
    case DIM_VM: *key = "vision_config.intermediate_size"; return v->d_ffn;
    case DIM_VPOSITION:
        *key = "vision_config.num_position_embeddings";
        if (v->position_side) return (int64_t)v->position_side * v->position_side;
        *key = "vision_config.image_size / patch_size";
        return side * side + v->class_token;
    case DIM_VCHANNEL: *key = "vision_config.num_channels"; return 3;
    case DIM_VPATCH: *key = "vision_config.patch_size"; return v->patch;
    case DIM_FEATURE:
        *key = v->merge > 1 ? "vision_config.hidden_size * scale_factor^2"
                            : "vision_config.hidden_size * vision_feature_layer's length";
        if (!v->patch_merger && !v->pool_patches && v->connector != FV_CONNECTOR_LDP)
            return fv_vision_feature_width(v);
        *key = "vision_config.hidden_size";
        return v->d_model;
    case DIM_NORMED:
        *key = "vision_config.hidden_size, of a patch or of a token's patches";
        return v->projector_norm == FV_PROJECTOR_NORM_PATCHES || v->mean_pool
                   ? v->d_model
                   : fv_vision_feature_width(v);
    case DIM_BETWEEN:
        *key = v->projector_wide ? "vision_config's width * spatial_merge_size^2" : "hidden_size";
        return v->projector_wide ? fv_vision_feature_width(v) : t->d_model;
    case DIM_VHEAD: *key = "vision_config.hidden_size / num_heads"; return v->d_head;
    case DIM_VMERGE: *key = "vision_config.spatial_merge_size"; return v->merge;
    case DIM_GLM: *key = "the width of vision_config's merger"; return v->d_between;
    case DIM_MERGED:
        *key = "vision_config.hidden_size * spatial_merge_size^2";
        return fv_vision_feature_width(v);
    }
    return 0;
}

/* Whether the row's tensor exists, of a text layer in layer `layer`. */
static bool exists(const builder *b, when w, int32_t layer) {
    const fv_text_config *t = &b->cfg->text;
    const fv_vision_config *v = &b->cfg->vision;
    bool mlp = v->connector == FV_CONNECTOR_MLP || v->connector == FV_CONNECTOR_LDP;
    switch (w) {
    case ALWAYS: return true;
    case BIAS_QKV: return t->bias_qkv;
    case BIAS_O: return t->bias_o;
    case BIAS_MLP: return t->bias_mlp;
    case QK_NORM: return t->qk_norm;
    case LAYER_NUMBER: return t->layer_scale;
    case KEYS: return !t->fused && layer < t->n_layer;
    case KEY_NORM: return t->qk_norm && layer < t->n_layer;
    case INPUTS: return t->d_input > 0;
    case VALUES: return !t->fused && layer < t->n_layer && !(t->value_is_key && !t->slides[layer]);
    case APART: return !t->fused;
    case FUSED: return t->fused;
    case FUSED_FFN: return (t->fused || t->fused_ffn) && !t->sparse[layer];
    case OUTPUT_NORMS: return t->output_norms;
    case DENSE: return !t->sparse[layer] || t->dense_beside;
    case DENSE_APART: return !t->fused && !t->fused_ffn && (!t->sparse[layer] || t->dense_beside);
    case SPARSE: return t->sparse[layer] && !t->dense_beside;
    case BESIDE: return t->dense_beside && t->sparse[layer];
    case SPARSE_PLAIN:
        return t->sparse[layer] && !t->experts_transposed && !t->dense_beside && !t->experts_apart;
    case SIGMOID: return t->router.sigmoid && t->sparse[layer];
    case SHARED_GATED: return t->d_shared && t->shared_gated && t->sparse[layer];
    case SHARED_PLAIN: return t->d_shared && !t->shared_gated && t->sparse[layer];
    case SPARSE_TRANSPOSED: return t->sparse[layer] && t->experts_transposed;
    case PRE_NORMS: return !t->post_norms;
    case POST_NORMS: return t->post_norms;
    case CONNECTOR_MLP: return mlp;
    case BIAS_MLP_CONNECTOR: return mlp && v->projector_bias;
    case CONNECTOR_LINEAR: return v->connector == FV_CONNECTOR_LINEAR && !v->mean_pool;
    case CONNECTOR_MEAN: return v->mean_pool;
    case CONNECTOR_NORM: return v->projector_norm != FV_PROJECTOR_NORM_NONE && !v->projector_plain;
    case STANDARD: return v->standardize;
    case CONNECTOR_NORM_BIAS:
        return v->projector_norm != FV_PROJECTOR_NORM_NONE && !v->projector_rms;
    case CONNECTOR_MERGER: return v->patch_merger;
    case CONNECTOR_PEG: return v->connector == FV_CONNECTOR_LDP;
    case NEWLINE: return b->cfg->newline;
    case CLASS_TOKEN: return v->class_token && !b->cfg->leading_ones;
    case CLASS_TOKEN_3D: return v->class_token && b->cfg->leading_ones;
    case POSITION: return (!v->any_size || v->position_side) && !b->cfg->leading_ones;
    case POSITION_3D: return b->cfg->leading_ones;
    case POSITION_AXES: return v->position_axis > 0 && !v->position_pairs;
    case POSITION_PAIRS: return v->position_axis > 0 && v->position_pairs;
    case LAYER_BIAS: return !v->rms_norm;
    case PRE_NORM_BIAS: return v->pre_norm && !v->rms_norm;
    case VISION_QKV: return !v->fused_qkv;
    case VISION_BIAS_QKV: return v->bias_qkv && !v->fused_qkv;
    case VISION_FUSED: return v->fused_qkv;
    case VISION_BIAS_FUSED: return v->fused_qkv && v->bias_qkv;
    case VISION_BIAS_O: return v->bias_o;
    case VISION_PLAIN: return !v->gated;
    case VISION_PLAIN_BIAS: return !v->gated && v->bias_mlp;
    case VISION_GATED: return v->gated;
    case VISION_GATED_BIAS: return v->gated && v->bias_mlp;
    case VISION_QK_NORM: return v->qk_norm;
    case VISION_QK_NORM_HEADS: return v->qk_norm_heads || v->head_norms;
    case CLIPPED: return v->clipped;
    case LAYER_SCALE: return v->layer_scale;
    case VISION_POST_NORMS: return v->post_norms;
    case PATCH_ROWS: return v->channels_last;
    case PATCH_NORMS: return v->patch_norms;
    case PATCH_FRAME: return !v->two_frames && !v->channels_last;
    case PATCH_FRAMES: return v->two_frames;
    case PATCH_BIAS: return v->patch_bias;
    case PRE_NORM: return v->pre_norm && !v->norm_patches;
    case NORM_PATCHES: return v->norm_patches;
    case POST_NORM: return v->post_norm;
    case POST_NORM_BIAS: return v->post_norm && !v->post_norm_rms;
    case UNUSED_POST_NORM: return b->whole && !v->post_norm && b->cfg->tower_norm;
    case UNUSED_HEAD: return b->whole && b->cfg->pooling_head;
    case UNUSED_POSITIONS: return b->whole && b->cfg->packed_positions;
    case UNUSED_MASK: return b->whole && b->cfg->mask_token;
    }
    return false;
}

static void add_rows(builder *b, const row *rows, size_t n, fv_tensor_part part, int32_t layer,
                     const char *prefix) {
    for (size_t i = 0; i < n; i++) {
        const row *r = &rows[i];
        if (!exists(b, r->when, layer)) continue;
        fv_tensor_spec *e = &b->entry[b->n++];
        *e = (fv_tensor_spec){.role = r->role, .part = part, .layer = layer, .offset = r->offset};
        snprintf(e->name, sizeof e->name, "%s%s", prefix, r->name);
        while (e->n_dim < FV_TENSOR_SPECS_MAX_DIMS && r->dims[e->n_dim]) {
            e->shape[e->n_dim] =
                size_of(b->cfg, r->dims[e->n_dim], layer, &e->shape_keys[e->n_dim]);
            e->n_dim++;
        }
    }
}

#define ADD(b, rows, part, layer, prefix)                                                          \
    add_rows((b), (rows), sizeof(rows) / sizeof *(rows), (part), (layer), (prefix))

/* Number of tower layers that run: the last feature layer's index. */
static int32_t vision_layers(const fv_model_config *cfg) {
    int32_t last = 0;
    for (int32_t i = 0; i < cfg->vision.n_feature_layer; i++)
        if (cfg->vision.feature_layer[i] > last) last = cfg->vision.feature_layer[i];
    return last;
}

/* Adds the tower for videos, without the layer that only captures need. */
static void add_video_tower(builder *b, int32_t run) {
    char prefix[64];
    ADD(b, vision_front, FV_PART_VIDEO, 0, "video.");
    for (int32_t i = 0; i < (b->whole ? b->cfg->vision.n_layer : run); i++) {
        snprintf(prefix, sizeof prefix, "video.encoder.layers.%d.", i);
        ADD(b, vision_layer, i < run ? FV_PART_VIDEO_LAYER : FV_PART_UNUSED, i, prefix);
    }
    ADD(b, vision_back, FV_PART_UNUSED, 0, "video.");
}

static void build_vision(builder *b) {
    const fv_model_config *cfg = b->cfg;
    char prefix[64];
    ADD(b, connector, FV_PART_PROJECTOR, 0, "projector.");
    ADD(b, standard, FV_PART_PROJECTOR, 0, "vision.");
    ADD(b, newline, FV_PART_PROJECTOR, 0, "");
    for (int32_t i = 0; i < cfg->vision.n_deepstack; i++) {
        snprintf(prefix, sizeof prefix, "deepstack.%d.", i);
        ADD(b, deepstack, FV_PART_DEEPSTACK, i, prefix);
    }
    ADD(b, vision_front, FV_PART_VISION, 0, "vision.");
    if (cfg->vision.connector == FV_CONNECTOR_GLM) {
        ADD(b, glm_connector, FV_PART_PROJECTOR, 0, "projector.");
        ADD(b, glm_merger, FV_PART_PROJECTOR, 0, "vision.");
    }
    int32_t run = vision_layers(cfg);
    for (int32_t i = 0; i < (b->whole ? cfg->vision.n_layer : run); i++) {
        snprintf(prefix, sizeof prefix, "vision.encoder.layers.%d.", i);
        ADD(b, vision_layer, i < run ? FV_PART_VISION_LAYER : FV_PART_UNUSED, i, prefix);
    }
    if (!b->whole && run < cfg->vision.n_layer && cfg->vision.class_token) {
        int32_t from = b->n;
        snprintf(prefix, sizeof prefix, "vision.encoder.layers.%d.", run);
        add_rows(b, vision_layer, ASKED, FV_PART_VISION_LAYER, run, prefix);
        for (int32_t i = from; i < b->n; i++) b->entry[i].optional = true;
    }
    ADD(b, vision_back, FV_PART_UNUSED, 0, "vision.");
    if (cfg->video_tower) add_video_tower(b, run);
}

/* Adds the experts of a layer whose name begins with `prefix`, where files have each by itself. */
static void add_experts(builder *b, int32_t layer, const char *prefix) {
    const fv_text_config *t = &b->cfg->text;
    char first[96];
    for (int32_t e = 0; t->experts_apart && t->sparse[layer] && e < t->n_expert; e++) {
        snprintf(first, sizeof first, "%smlp.experts.%d.", prefix, e);
        ADD(b, text_expert, FV_PART_TEXT_EXPERT, layer * t->n_expert + e, first);
    }
}

fv_status fv_tensor_specs_build(const fv_model_config *cfg, bool whole, fv_tensor_spec **out,
                                int32_t *n) {
    enum { PER_LAYER = 64, PER_EXPERT = sizeof text_expert / sizeof *text_expert };
    enum { OTHERS = 40 + 6 * FV_MAX_DEEPSTACK };
    _Static_assert((sizeof text_layer + sizeof text_fused) / sizeof *text_layer <= PER_LAYER,
                   "rows of a text layer");
    _Static_assert(sizeof vision_layer / sizeof *vision_layer <= PER_LAYER,
                   "rows of a tower layer");
    builder b = {.cfg = cfg, .whole = whole};
    int32_t towers = cfg->video_tower ? 2 : 1;
    int32_t run = cfg->text.recurrent.n,
            n_layer = cfg->text.n_layer * (run + 1) + cfg->text.n_sharer; /* of the file */
    int32_t most = towers * OTHERS + PER_LAYER * (n_layer + towers * cfg->vision.n_layer);
    if (cfg->text.experts_apart) most += n_layer * cfg->text.n_expert * PER_EXPERT;
    b.entry = calloc((size_t)most, sizeof(*b.entry));
    if (!b.entry) return FV_FAIL(FV_ENOMEM, "no memory for a list of %d tensors", most);
    char prefix[64];
    ADD(&b, text_front, FV_PART_TEXT, 0, "text.");
    for (int32_t i = 0; i < n_layer; i++) {
        int32_t layer = i / (run + 1), in = i % (run + 1);
        snprintf(prefix, sizeof prefix, "text.layers.%d.", i);
        if (in < run) {
            ADD(&b, recurrent_layer, FV_PART_RECURRENT_LAYER, layer * run + in, prefix);
        } else {
            ADD(&b, text_layer, FV_PART_TEXT_LAYER, layer, prefix);
            ADD(&b, text_fused, FV_PART_TEXT_FUSED, layer, prefix);
            add_experts(&b, layer, prefix);
        }
    }
    ADD(&b, text_back, FV_PART_TEXT, 0, "text.");
    ADD(&b, text_head, FV_PART_TEXT, 0, "lm_head.");
    if (cfg->has_vision) build_vision(&b);
    *out = b.entry;
    *n = b.n;
    return FV_OK;
}

void fv_tensor_specs_view(const fv_tensor_spec *e, int32_t *rows, int32_t *cols) {
    /* An embedding's last dimension is one row; in a kernel all dimensions but the first are. */
    int32_t last = e->role == FV_ROLE_EMBEDDING ? e->n_dim - 1 : e->n_dim > 1;
    int64_t r = 1, c = 1;
    if (e->role == FV_ROLE_EXPERTS || e->role == FV_ROLE_EXPERTS_TRANSPOSED) {
        bool transposed = e->role == FV_ROLE_EXPERTS_TRANSPOSED;
        *rows = (int32_t)(e->shape[0] * e->shape[transposed ? 2 : 1]);
        *cols = (int32_t)e->shape[transposed ? 1 : 2];
        return;
    }
    for (int32_t i = 0; i < e->n_dim; i++) *(i < last ? &r : &c) *= e->shape[i];
    *rows = (int32_t)r;
    *cols = (int32_t)c;
}
