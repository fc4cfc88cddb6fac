#ifndef FOVEA_MODEL_CONFIG_H
#define FOVEA_MODEL_CONFIG_H

/* Configuration beside the weights: config.json and image preprocessing (families/), and
 * sampling. */
#include "model/families/families.h"

/* Generation defaults (generation_config.json). */
typedef struct fv_generation_config {
    bool do_sample;
    float temperature, top_p, repetition_penalty;
    int32_t top_k; /* 0: off */
} fv_generation_config;

/* Adds the eos ids of generation_config.json to cfg and fills *gen; n = 0 (no file) gives the
 * defaults: greedy. */
fv_status fv_generation_parse(const char *json, size_t n, const char *where, fv_model_config *cfg,
                              fv_generation_config *gen);

#endif
