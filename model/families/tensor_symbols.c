/* Sizes and conditions of the tables of tensors, in one config. */
#include "model/families/tensor_specs_internal.h"

/* Dimensions of a head of a text layer, and its heads of keys and values. */
static int64_t head_of(const fv_text_config *t, int32_t layer) {
    return t->slide_d && t->slides[layer] ? t->slide_d : t->d_head;
}

static int64_t kv_of(const fv_text_config *t, int32_t layer) {
    return !t->slide_d ? t->n_kv : t->slides[layer] ? t->slide_kv : t->full_kv;
}

int64_t fv_spec_size(const fv_model_config *cfg, fv_spec_dim dim, int32_t layer, const char **key) {
    const fv_text_config *t = &cfg->text;
    const fv_vision_config *v = &cfg->vision;
    int64_t side = fv_vision_side(v);
    switch (dim) {
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

bool fv_spec_exists(const fv_model_config *cfg, bool whole, fv_spec_when when, int32_t layer) {
    const fv_text_config *t = &cfg->text;
    const fv_vision_config *v = &cfg->vision;
    bool mlp = v->connector == FV_CONNECTOR_MLP || v->connector == FV_CONNECTOR_LDP;
    switch (when) {
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
    case BESIDE_PLAIN: return t->dense_beside && t->sparse[layer] && !t->experts_apart;
    case SPARSE_PLAIN:
        return t->sparse[layer] && !t->experts_transposed && !t->dense_beside && !t->experts_apart;
    case SIGMOID: return t->router.sigmoid && t->sparse[layer];
    case SHARED_GATED: return t->d_shared && t->shared_gated && t->sparse[layer];
    case SHARED_PLAIN: return t->d_shared && !t->shared_gated && t->sparse[layer];
    case SPARSE_TRANSPOSED: return t->sparse[layer] && t->experts_transposed && !t->experts_apart;
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
    case NEWLINE: return cfg->newline;
    case CLASS_TOKEN: return v->class_token && !cfg->leading_ones;
    case CLASS_TOKEN_3D: return v->class_token && cfg->leading_ones;
    case POSITION: return (!v->any_size || v->position_side) && !cfg->leading_ones;
    case POSITION_3D: return cfg->leading_ones;
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
    case UNUSED_POST_NORM: return whole && !v->post_norm && cfg->tower_norm;
    case UNUSED_HEAD: return whole && cfg->pooling_head;
    case UNUSED_POSITIONS: return whole && cfg->packed_positions;
    case UNUSED_MASK: return whole && cfg->mask_token;
    }
    return false;
}
