#ifndef FOVEA_MODEL_CONFIG_H
#define FOVEA_MODEL_CONFIG_H

/* What the files beside the weights say: config.json (families/), how answers are sampled, how images
 * become pixel values. */
#include "model/families/families.h"

/* Generation defaults (generation_config.json). */
typedef struct fv_generation_config {
    bool do_sample;
    float temperature, top_p, repetition_penalty;
    int32_t top_k; /* 0: off */
} fv_generation_config;

/* What becomes of pixels (preprocessor_config.json, or nested in processor_config.json); which of them
 * go where is the layout's (layout/layout.h). */
typedef struct fv_image_config {
    bool do_rescale, do_normalize, do_convert_rgb;
    int32_t resample; /* 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic */
    double rescale_factor;
    float mean[3], std[3];
} fv_image_config;

/* Adds the eos ids of generation_config.json to cfg and fills *gen; n = 0 (no file) gives the
 * defaults: greedy. */
fv_status fv_generation_parse(const char *json, size_t n, const char *where, fv_model_config *cfg,
                              fv_generation_config *gen);

/* Parses preprocessor_config.json or processor_config.json (either, or nested under
 * "image_processor"): sizes to *layout, which has what config.json says, the rest to *out. n = 0 gives
 * the family's defaults. */
fv_status fv_image_config_parse(const char *json, size_t n, const char *where,
                                fv_layout_config *layout, fv_image_config *out);

#endif
