#ifndef FOVEA_MODEL_SYNTH_SYNTH_H
#define FOVEA_MODEL_SYNTH_SYNTH_H

/* SYNTHETIC CHECKPOINTS: directories with random weights that this engine and transformers
 * load like real ones, for tests and for measuring speed without real weights.
 *
 * Every value depends on (seed, canonical tensor name, element index) and nothing else, then it
 * is rounded to the dtype. So the same network can be written in every name mapping, in any number
 * of shards, and cut to fewer layers, and stays the same. */
#include "kernels/tensor.h"
#include "model/config.h"
#include "model/families/name_mapping.h"

typedef struct fv_synth_options {
    const char *dir; /* created if absent */
    const char
        *shape; /* "llava-1.5-7b", "small", "nano" ... (config.c), or NULL with config_file */
    const char *config_file; /* a config.json to take the shapes from, or NULL */
    /* With a shape: */
    const char *family;      /* model_type, also of a text-only model; NULL: llava */
    const char *text_family; /* model_type of its text model; NULL: the family's default */
    int32_t n_layer;         /* text layers; 0: the shape's */
    int32_t n_vision_layer;  /* tower layers; 0: the shape's */
    int32_t n_shard;         /* 0 or 1: one file and no index */
    fv_dtype dtype;
    fv_name_mapping name_mapping; /* base and bare have no head, so they tie it to the embedding */
    bool config_v5;               /* config files as transformers 5 writes them; false: as 4 does */
    bool force;                   /* write into a directory that is not empty, replacing its
                                   * files */
    uint64_t seed;
} fv_synth_options;

typedef struct fv_synth_report {
    uint64_t bytes; /* of all tensors */
    int32_t n_tensor, n_file;
} fv_synth_report;

/* Writes config.json, generation_config.json, the processor's files, the tokenizer's, a chat
 * template and the weights. FV_EINVAL: unknown shape, options that contradict each other, or a
 * directory that is not empty; errors of fv_config_parse for an invalid config. */
fv_status fv_synth_write(const fv_synth_options *opt, fv_synth_report *out);

/* Makes the config only: from opt->shape, family and layers, or from opt->config_file. Errors as
 * above. */
fv_status fv_synth_config(const fv_synth_options *opt, fv_model_config *out);

#endif
