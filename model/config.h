#ifndef FOVEA_MODEL_CONFIG_H
#define FOVEA_MODEL_CONFIG_H

/* What the network is: shapes and constants, read from a checkpoint's config.json with the
 * defaults that such files leave out. No tensor is touched here.
 *
 * Letters: N layers, H query heads, Hkv KV heads, D head dim, d model width, m FFN width. */
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FV_MAX_LAYERS = 256, FV_MAX_EOS = 16, FV_MAX_FEATURE_LAYERS = 8 };

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

typedef struct fv_vision_config {
    int32_t d_model, d_ffn, n_layer, n_head, d_head;
    int32_t image, patch; /* pixels */
    float ln_eps;
    fv_activation act;
} fv_vision_config;

/* LLaVA: a CLIP tower, features of some of its layers, a two-layer projector, a text model. */
typedef struct fv_model_config {
    char family[16]; /* "llava", or "text" for a checkpoint without vision */
    bool has_vision;
    fv_vision_config vision;
    fv_text_config text;
    /* hidden_states[i] of the tower, i in 0..n_layer (0 = before the first layer),
     * concatenated over channels */
    int32_t n_feature_layer, feature_layer[FV_MAX_FEATURE_LAYERS];
    bool keep_cls; /* strategy "full" keeps row 0; "default" drops it */
    fv_activation projector_act;
    bool projector_bias;
    int32_t image_token;            /* id of <image> */
    int32_t n_eos, eos[FV_MAX_EOS]; /* union of config and generation_config */
    bool eos_is_default;            /* config.json names none: eos is the family's default, which
                                     * ids in generation_config.json replace */
    int32_t n_vocab_used; /* ids from here to text.vocab - 1 are padding rows, never sampled;
                           * equals text.vocab until the tokenizer is known */
} fv_model_config;

/* Rows that one image becomes in the prompt: (image / patch)^2, plus 1 with keep_cls. */
static inline int32_t fv_model_visual_tokens(const fv_model_config *cfg) {
    if (!cfg->has_vision) return 0;
    int32_t side = cfg->vision.image / cfg->vision.patch;
    return side * side + (cfg->keep_cls ? 1 : 0);
}

/* Generation defaults (generation_config.json). */
typedef struct fv_generation_config {
    bool do_sample;
    float temperature, top_p, repetition_penalty;
    int32_t top_k; /* 0: off */
} fv_generation_config;

/* Preprocessing constants (preprocessor_config.json, or nested in processor_config.json). */
typedef struct fv_image_config {
    bool do_resize, do_center_crop, do_rescale, do_normalize, do_convert_rgb;
    int32_t shortest_edge; /* size.shortest_edge; 0: size is fixed to resize_w x resize_h */
    int32_t resize_h, resize_w;
    int32_t crop_h, crop_w;
    int32_t resample; /* 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic */
    double rescale_factor;
    float mean[3], std[3];
    bool pad_square; /* image_aspect_ratio=pad: to a square, with the mean colour, first */
} fv_image_config;

/* Parses the text of config.json. `where` names the file in errors. Every key that is wrong
 * or unknown in a way that changes the result (family, activation, rope type, strategy,
 * shapes that do not divide) is named with what was expected: FV_EDATA for broken JSON or
 * types, FV_EUNSUPPORTED for what this engine does not do. */
fv_status fv_config_parse(const char *json, size_t n, const char *where, fv_model_config *out);

/* Adds the eos ids of generation_config.json to cfg and fills *gen; n = 0 (no file) gives the
 * defaults: greedy. */
fv_status fv_generation_parse(const char *json, size_t n, const char *where, fv_model_config *cfg,
                              fv_generation_config *gen);

/* Parses preprocessor_config.json or processor_config.json (either, or nested under
 * "image_processor"); n = 0 gives CLIP's defaults at cfg's image size. */
fv_status fv_image_config_parse(const char *json, size_t n, const char *where,
                                const fv_model_config *cfg, fv_image_config *out);

#ifdef __cplusplus
}
#endif
#endif
