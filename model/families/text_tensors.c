/* Tensors of the text model. */
#include "model/families/tensor_specs_internal.h"

#define T(m) offsetof(fv_text_weights, m)
#define L(m) offsetof(fv_text_layer, m)
#define F(m) offsetof(fv_text_fused, m)
#define X(m) offsetof(fv_text_expert, m)

static const fv_spec_row text_front[] = {
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

static const fv_spec_row text_attention[] = {
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
};

static const fv_spec_row text_recurrent[] = {
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
};

/* The FFN of a layer, with attention or recurrent: dense, or with experts, or both. */
static const fv_spec_row text_ffn[] = {
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
    {"experts.gate_up_proj",
     L(experts_in),
     {DIM_EXPERTS, DIM_2E, DIM_D},
     FV_ROLE_EXPERTS,
     BESIDE_PLAIN},
    {"experts.down_proj",
     L(experts_out),
     {DIM_EXPERTS, DIM_D, DIM_E},
     FV_ROLE_EXPERTS,
     BESIDE_PLAIN},
};

static const fv_spec_row text_fused[] = {
    {"self_attn.qkv_proj.weight", F(qkv), {DIM_QKV, DIM_D}, FV_ROLE_LINEAR, FUSED},
    {"mlp.gate_up_proj.weight", F(gate_up), {DIM_2M, DIM_D}, FV_ROLE_LINEAR, FUSED_FFN},
};

/* The tensors of an expert, where files have each expert by itself. */
static const fv_spec_row text_expert[] = {
    {"gate_proj.weight", X(gate), {DIM_E, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"up_proj.weight", X(up), {DIM_E, DIM_D}, FV_ROLE_LINEAR, ALWAYS},
    {"down_proj.weight", X(down), {DIM_D, DIM_E}, FV_ROLE_LINEAR, ALWAYS},
};

static const fv_spec_row text_back[] = {
    {"norm.weight", T(norm), {DIM_D}, FV_ROLE_NORM, ALWAYS},
};

static const fv_spec_row text_head[] = {
    {"weight", T(head), {DIM_VOCAB, DIM_D}, FV_ROLE_HEAD, ALWAYS},
};

_Static_assert((sizeof text_attention + sizeof text_ffn + sizeof text_fused) / sizeof *text_ffn <=
                   FV_SPECS_PER_LAYER,
               "rows of a text layer");
_Static_assert((sizeof text_recurrent + sizeof text_ffn) / sizeof *text_ffn <= FV_SPECS_PER_LAYER,
               "rows of a recurrent layer");
_Static_assert(sizeof text_expert / sizeof *text_expert <= FV_SPECS_PER_EXPERT,
               "rows of an expert");

const fv_spec_rows fv_specs_text_front = {text_front, sizeof text_front / sizeof *text_front};
const fv_spec_rows fv_specs_text_attention = {text_attention,
                                              sizeof text_attention / sizeof *text_attention};
const fv_spec_rows fv_specs_text_recurrent = {text_recurrent,
                                              sizeof text_recurrent / sizeof *text_recurrent};
const fv_spec_rows fv_specs_text_ffn = {text_ffn, sizeof text_ffn / sizeof *text_ffn};
const fv_spec_rows fv_specs_text_fused = {text_fused, sizeof text_fused / sizeof *text_fused};
const fv_spec_rows fv_specs_text_expert = {text_expert, sizeof text_expert / sizeof *text_expert};
const fv_spec_rows fv_specs_text_back = {text_back, sizeof text_back / sizeof *text_back};
const fv_spec_rows fv_specs_text_head = {text_head, sizeof text_head / sizeof *text_head};
