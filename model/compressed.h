#ifndef FOVEA_MODEL_COMPRESSED_H
#define FOVEA_MODEL_COMPRESSED_H

/* CHECKPOINTS in the format of compressed-tensors (as llm-compressor writes and vLLM reads them),
 * read and written. For a linear layer X a file has
 *
 *   W8A8, "int-quantized":   X.weight I8 [N, K];          X.weight_scale [N, 1]
 *                            in groups: X.weight_scale [N, K/32]; activations are in groups of 32
 *   W4A16, "pack-quantized": X.weight_packed I32 [N, K/8], X.weight_scale [N, K/group],
 *                            X.weight_shape [2];          X.weight_zero_point I32 [N/8, K/group]
 *                            if the range is not symmetric
 *   W4A8, "pack-quantized":  the same, symmetric; activations are integers of 8 bits in groups of 32
 *
 * and config.json a "quantization_config". An I32 packs eight int4 values, each plus 8, the first
 * in its lowest bits. */
#include "common/arena.h"
#include "model/families/tensor_specs.h"
#include "model/quantize.h"
#include "model/shards.h"

/* The quantization_config; {0}: nothing is quantized. */
typedef struct fv_compressed {
    bool int8;        /* a scale per channel */
    bool int8_groups; /* one per 32 columns */
    int32_t group;    /* columns per scale in int4, -1: all; 0: no int4 */
    bool zero;        /* int4 has zero points */
    bool integers;    /* int4 weights are multiplied with int8 activations (fv_quant) */
} fv_compressed;

/* FV_EUNSUPPORTED names the method or setting that is not supported. */
fv_status fv_compressed_parse(const char *text, size_t bytes, const char *where,
                              fv_compressed *out);

/* The tensor in the files with the integers of weight e, or NULL; embeddings have none. */
const fv_shard_tensor *fv_compressed_find(const fv_shards *sh, const fv_tensor_spec *e);

/* Makes the weight's view; `arena` gets parts that cannot be borrowed. */
fv_status fv_compressed_view(const fv_compressed *c, fv_arena *arena, const fv_shards *sh,
                             const fv_shard_tensor *t, const fv_tensor_spec *e, fv_tensor *out);

/* Returns whether `canonical` belongs to a quantized weight, whose name goes to `weight`. */
bool fv_compressed_belongs(const char *canonical, char weight[FV_TENSOR_NAME_MAX]);

/* A weight to write: in place of a tensor in the files, or a new one called `name`. It may have no
 * integers. */
typedef struct fv_compressed_weight {
    const fv_shard_tensor *tensor; /* or NULL */
    fv_tensor as;
    const char *name; /* if tensor is NULL */
} fv_compressed_weight;

/* Writes `dir`: config.json with a quantization_config, in which int8 in groups is the output
 * head's format; the weights, with quantized[i] in this format; and copies of all other files of
 * `from` except weights and calibration. on_tensor may be NULL. */

typedef struct fv_compressed_job {
    const char *from, *dir;
    const char *config; /* text of config.json */
    size_t config_bytes;
    const fv_shards *shards;
    const fv_weights *to;
    const fv_compressed_weight *quantized; /* [n] */
    int32_t n;
    void (*on_tensor)(void *user, int32_t done, int32_t n);
    void *user;
} fv_compressed_job;

fv_status fv_compressed_write(const fv_compressed_job *job, uint64_t *bytes);

#endif
