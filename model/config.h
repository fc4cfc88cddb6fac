#ifndef FOVEA_MODEL_CONFIG_H
#define FOVEA_MODEL_CONFIG_H

/* What the network is: shapes and constants, read from a checkpoint's config.json with the
 * defaults that such files leave out. No tensor is touched here.
 *
 * Letters: N layers, H query heads, Hkv KV heads, D head dim, d model width, m FFN width. */
#include "common/status.h"
#include "model/net/config.h"

enum { FV_MAX_EOS = 16 };

/* LLaVA: a CLIP tower, features of some of its layers, a two-layer projector, a text model. */
typedef struct fv_model_config {
    char family[16]; /* "llava", or "text" for a checkpoint without vision */
    bool has_vision;
    fv_vision_config vision;
    fv_text_config text;
    int32_t image_token;            /* id of <image> */
    int32_t n_eos, eos[FV_MAX_EOS]; /* union of config and generation_config */
    bool eos_is_default;            /* config.json names none: eos is the family's default, which
                                     * ids in generation_config.json replace */
    int32_t n_vocab_used; /* ids from here to text.vocab - 1 are padding rows, never sampled;
                           * equals text.vocab until the tokenizer is known */
} fv_model_config;

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

#endif
