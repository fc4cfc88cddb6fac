#ifndef FOVEA_MODEL_CHECKPOINT_INTERNAL_H
#define FOVEA_MODEL_CHECKPOINT_INTERNAL_H

/* The files of an open checkpoint share this: checkpoint.c opens and closes, checkpoint_configs.c
 * reads configs, checkpoint_tensors.c finds tensors and makes their views, checkpoint_load.c repacks
 * and quantizes, checkpoint_identity.c tells checkpoints and damaged weights apart. */
#include "common/arena.h"
#include "model/calibration.h"
#include "model/checkpoint.h"
#include "model/families/tensor_specs.h"
#include "model/gguf_weights.h"
#include "model/shards.h"
#include "model/stored.h"
#include "model/tower_directory.h"
#include "model/transpose.h"

/* A tensor that the network uses. */
typedef struct fv_used_tensor {
    const fv_tensor_spec *expected;
    const fv_shard_tensor *found;
    fv_tensor view;
    fv_gguf_weight gguf;     /* filled by fv_checkpoint_load; data NULL: the view is complete, */
    fv_transposed experts;   /* unless these have data, which loading or quantizing transposes, */
    fv_stored_weight stored; /* or this has a form: filled by fv_checkpoint_load */
} fv_used_tensor;

struct fv_checkpoint {
    fv_arena arena;
    bool headers_only; /* set before opening: views have no data, and no memory is kept for it */
    fv_arena scratch;  /* with headers_only: the memory of one weight at a time */
    char *dir, *config_text;
    size_t config_bytes;
    fv_tower_directory tower_dir;
    fv_model_config cfg;
    fv_generation_config gen;
    fv_image_config image;
    fv_stored_config stored;
    fv_shards *shards;
    fv_shards *tower;         /* weights in tower_dir; NULL: `shards` has all */
    fv_tensor_spec *manifest; /* [n_manifest] */
    int32_t n_manifest;
    fv_used_tensor *used; /* [n_used], in the manifest's order */
    int32_t n_used;
    size_t bytes;
    size_t bytes_table; /* of the table of per-layer embeddings, not in bytes */
    fv_text_weights text;
    fv_text_fused *fused; /* [layers] with `fused` */
    fv_vision_weights vision, video;
    fv_projector_weights projector;
    fv_calibration calibration;
    char uncalibrated[512];
    fv_latent *latent;
    char no_latent[512];
};

/* Reads config.json, that of a tower with a directory of its own, and generation_config.json.
 * FV_ENOTFOUND, FV_EDATA, FV_EUNSUPPORTED as fv_checkpoint_open. */
fv_status fv_checkpoint_read_config(fv_checkpoint *ck, const char *dir);
fv_status fv_checkpoint_read_generation(fv_checkpoint *ck, const char *dir);

/* Reads how images and videos are prepared; for checkpoints with a tower. */
fv_status fv_checkpoint_read_processors(fv_checkpoint *ck, const char *dir);

/* Opens the weight files, and those of a tower in a directory of its own. */
fv_status fv_checkpoint_open_weights(fv_checkpoint *ck);

/* Finds every tensor of the network, checks its shape and makes its view; refuses tensors that
 * config.json does not account for. After fv_checkpoint_open_weights. */
fv_status fv_checkpoint_open_tensors(fv_checkpoint *ck);

/* The tensor of ck->text, vision, video or projector that `e` describes; NULL: the network does not use
 * it. */
fv_tensor *fv_checkpoint_slot(fv_checkpoint *ck, const fv_tensor_spec *e);

/* Returns whether `e` is a linear layer of the text model's layers: what is quantized. */
bool fv_checkpoint_is_layer_weight(const fv_tensor_spec *e);

/* Bytes of the tensor in memory, or in the mapped file. */
size_t fv_checkpoint_tensor_bytes(const fv_used_tensor *u);

/* Makes q, k and v, gate and up of fused tensors; again after quantizing. FV_ENOMEM. */
fv_status fv_checkpoint_split_fused(fv_checkpoint *ck);

#endif
