#ifndef FOVEA_MODEL_NET_CONFIG_H
#define FOVEA_MODEL_NET_CONFIG_H

/* Shapes and constants of the network. The decoder and the vision tower are opened with these; where
 * they come from (config.json) is of no interest here.
 *
 * Letters: N layers, H query heads, Hkv KV heads, D head dim, d model width, m FFN width. */
#include <stdbool.h>
#include <stdint.h>

#include "kernels/ops.h"

enum { FV_MAX_LAYERS = 256, FV_MAX_FEATURE_LAYERS = 8 };

typedef enum fv_rope_type { FV_ROPE_DEFAULT = 0, FV_ROPE_LINEAR, FV_ROPE_LLAMA3 } fv_rope_type;

typedef struct fv_rope_config {
    fv_rope_type type;
    double theta;
    double factor;                            /* linear, llama3 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_max_position;             /* llama3 */
} fv_rope_config;

typedef struct fv_text_config {
    char family[16]; /* "llama", "mistral" or "qwen2" */
    int32_t vocab, d_model, d_ffn, n_layer, n_head, n_kv, d_head;
    int32_t max_position; /* longest context; a sliding window, if any, caps it */
    float rms_eps;
    bool bias_qkv, bias_o, bias_mlp;
    bool tied_head; /* lm_head shares embed_tokens */
    fv_activation act;
    fv_rope_config rope;
    int32_t bos; /* -1: none */
} fv_text_config;

/* A CLIP tower, features of some of its layers, and a two-layer projector. */
typedef struct fv_vision_config {
    int32_t d_model, d_ffn, n_layer, n_head, d_head;
    int32_t image, patch; /* pixels */
    float ln_eps;
    fv_activation act;
    /* hidden_states[i] of the tower, i in 0..n_layer (0 = before the first layer),
     * concatenated over channels */
    int32_t n_feature_layer, feature_layer[FV_MAX_FEATURE_LAYERS];
    bool keep_cls; /* strategy "full" keeps row 0; "default" drops it */
    fv_activation projector_act;
    bool projector_bias;
    int32_t d_text; /* width of the text model, which the projector maps to */
} fv_vision_config;

/* Visual tokens of one image: (image / patch)^2, plus 1 with keep_cls; 0 without a tower. */
static inline int32_t fv_vision_tokens(const fv_vision_config *v) {
    if (!v->patch) return 0;
    int32_t side = v->image / v->patch;
    return side * side + (v->keep_cls ? 1 : 0);
}

/* Columns of the features: d_model x number of feature layers. */
static inline int32_t fv_vision_feature_width(const fv_vision_config *v) {
    return v->d_model * v->n_feature_layer;
}

#endif
