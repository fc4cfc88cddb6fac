#ifndef FOVEA_MODEL_ENGINE_H
#define FOVEA_MODEL_ENGINE_H

/* ENGINE: a checkpoint ready to run: weights, tokenizer, backend, decoder and, if asked for, the
 * vision tower. What every program that computes opens first. One thread at a time. */
#include "model/checkpoint.h"
#include "model/latent/device.h"
#include "model/net/decoder.h"
#include "model/net/kv.h"
#include "model/net/vision.h"
#include "text/chat.h"
#include "text/generation.h"

typedef struct fv_engine_options {
    const char *checkpoint; /* directory or GGUF file */
    const char *backend;    /* "auto", "cpu", ... */
    const char *isa;        /* CPU path, "auto" */
    /* "f32" or "bf16": of products. "auto" or NULL: bf16 for bf16 checkpoints, f32 for others and on a
     * GPU; never by the CPU, so that workers of a fleet agree. A checkpoint is of the type of its
     * embeddings. */
    const char *compute;
    const char
        *kv_dtype; /* "f32", "bf16", "f16"; "auto" or NULL: bf16 with products in bf16, else f32 */
    const char *weights; /* "int8", ... (model/quantize.h); NULL: as stored */
    fv_checkpoint_progress
        *progress; /* while weights are quantized or read into memory; NULL: none */
    void *progress_user;
    int32_t threads;       /* 0: all cores */
    int32_t gpu;           /* number of the device, of a backend that has several */
    const char *gpu_trace; /* file that gets the GPU's time by kernel; NULL: none */
    const char *chat; /* chat template in place of the checkpoint's: a name or FILE.jinja; NULL */
    bool vision;      /* the tower too, where the checkpoint has one */
} fv_engine_options;

enum { FV_FINGERPRINT_MAX = 32 };

typedef struct fv_engine {
    fv_checkpoint *ck;
    fv_tokenizer *tok;
    fv_backend be;
    fv_decoder *dec;
    fv_latent_on_device latent; /* empty where the checkpoint has none of this compute mode */
    fv_dtype kv_dtype;          /* of keys and values, unless a pool is opened for another */
    fv_vision *vision;          /* NULL: text only, or not asked for */
    /* A tower of its own for videos; NULL: `vision` reads them, or nothing does. */
    fv_vision *video;
    fv_vision_config video_config;
    int32_t n_vocab; /* ids that may be sampled: later ones are padding */
    /* of the checkpoint; "+int8.2" after it with --weights int8, "+int4.3" with int4 */
    char fingerprint[FV_FINGERPRINT_MAX];
    char name[128]; /* the checkpoint's folder */
    char *chat;     /* spec of the chat template (text/chat.h) */
    bool be_open;   /* private */
} fv_engine;        /* {0} may be closed */

fv_status fv_engine_open(const fv_engine_options *opt, fv_engine *out);
void fv_engine_close(fv_engine *e);

/* Layers run so far, of the text model and the tower: it grows while something is computed. Any
 * thread. */
uint64_t fv_engine_layers_run(const fv_engine *e);

/* The chat template `spec`, "": the engine's. Gives *out. */
fv_status fv_engine_chat(const fv_engine *e, const char *spec, fv_chat **out);

/* Of an answer that this checkpoint gives: greedy; max_tokens and stop strings are left to set. The
 * list of EOS ids is the checkpoint's. */
fv_generation_options fv_engine_generation_options(const fv_engine *e, bool ignore_eos);

/* Latent directions for rows kept as `dtype`; NULL, and *why: there are none. Borrowed. */
const fv_latent *fv_engine_latent(const fv_engine *e, fv_dtype dtype, const char **why);

/* Of rows kept as `dtype`, for fv_kv_pool_open. */
fv_kv_shape fv_engine_kv_shape(const fv_engine *e, fv_dtype dtype);

/* A value of fv_engine_options.kv_dtype, with products in `compute`. FV_EINVAL names those there are. */
fv_status fv_engine_kv_dtype(const char *name, fv_compute compute, fv_dtype *out);

#endif
