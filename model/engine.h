#ifndef FOVEA_MODEL_ENGINE_H
#define FOVEA_MODEL_ENGINE_H

/* ENGINE: a checkpoint ready to run: weights, tokenizer, backend, decoder and, if asked for, the
 * vision tower. Every program that computes opens one first. One thread at a time. */
#include "kv/kv.h"
#include "model/adapter.h"
#include "model/checkpoint.h"
#include "model/latent/device.h"
#include "model/net/decoder.h"
#include "model/net/vision.h"
#include "text/chat.h"
#include "text/generation.h"

typedef struct fv_engine_options {
    const char *checkpoint; /* directory or GGUF file */
    const char *backend;    /* "auto", "cpu", ... */
    const char *isa;        /* CPU path, "auto" */
    /* Type of products: "f32" or "bf16". "auto" or NULL: bf16 for bf16 checkpoints on a CPU, else
     * f32. The choice never depends on the kind of CPU, so that workers of a fleet agree. A
     * checkpoint has the type of its embeddings. */
    const char *compute;
    const char *
        kv_dtype; /* "f32", "bf16", "f16"; "auto" or NULL: bf16 with bf16 products; on a GPU, unless exact, the type of a
                           * checkpoint in 16 bits; otherwise f32 */
    const char *weights;        /* "int8", ... (model/quantize.h); NULL: as stored */
    const char *const *adapter; /* [n_adapter] "NAME=DIR" (model/adapter.h) */
    int32_t n_adapter;
    fv_checkpoint_progress
        *progress; /* called while weights are quantized or repacked; may be NULL */
    void *progress_user;
    int32_t threads;       /* 0: all cores */
    int32_t gpu;           /* index of the device, for backends with several */
    const char *gpu_trace; /* file for the GPU's time by kernel; NULL: none */
    const char *chat; /* chat template instead of the checkpoint's: a name or FILE.jinja; NULL: the
                       * checkpoint's */
    bool vision;      /* open the tower too, if the checkpoint has one */
} fv_engine_options;

enum { FV_FINGERPRINT_MAX = 64 };

typedef struct fv_engine {
    fv_checkpoint *ck;
    fv_tokenizer *tok;
    fv_backend be;
    fv_decoder *dec;
    fv_latent_on_device latent; /* empty if the checkpoint has none for this compute mode */
    fv_dtype kv_dtype;          /* type of keys and values, unless a pool is opened for another */
    fv_vision *vision;          /* NULL: text only, or not requested */
    /* Separate tower for videos; NULL: `vision` reads them, or the model reads none. */
    fv_vision *video;
    fv_vision_config video_config;
    int32_t n_vocab; /* ids that may be sampled; later ones are padding */
    fv_adapters adapters;
    /* the checkpoint's, with "+int8.2" appended for --weights int8, "+int4.3" for int4, "+integers.1" where
     * products multiply the files' own integers, and "+lora." with 16 digits that
     * stand for the adapters' names and contents */
    char fingerprint[FV_FINGERPRINT_MAX];
    char name[200]; /* of the checkpoint: fv_hub_name */
    char *chat;     /* spec of the chat template (text/chat.h) */
    bool be_open;   /* private, as is the next */
    fv_arena adapter_arena;
} fv_engine; /* {0} may be closed */

fv_status fv_engine_open(const fv_engine_options *opt, fv_engine *out);
void fv_engine_close(fv_engine *e);

/* FV_EDATA: the image token is beyond the vocabulary, and the tokenizer of `from` lacks it. */
fv_status fv_engine_check_tokenizer(const fv_model_config *cfg, const fv_tokenizer *tok,
                                    const char *from);

/* Number of layers run so far, of text model and tower: it grows while something is computed. Any
 * thread. */
uint64_t fv_engine_layers_run(const fv_engine *e);

/* Opens the chat template `spec`; "": the engine's. Gives *out. */
fv_status fv_engine_chat(const fv_engine *e, const char *spec, fv_chat **out);

/* Default options for an answer of this checkpoint: greedy, with its EOS ids; max_tokens and stop
 * strings are left to set. */
fv_generation_options fv_engine_generation_options(const fv_engine *e, bool ignore_eos);

/* Latent directions for rows stored as `dtype`, borrowed; NULL if there are none, with the reason
 * in *why. */
const fv_latent *fv_engine_latent(const fv_engine *e, fv_dtype dtype, const char **why);

/* Bytes of the checkpoint's tensors and of all adapters. */
size_t fv_engine_weight_bytes(const fv_engine *e);

/* Shape for fv_kv_pool_open, for rows stored as `dtype`. */
fv_kv_shape fv_engine_kv_shape(const fv_engine *e, fv_dtype dtype);

/* Names the type of products and, where it is not `exact`, the tier: "f32", "bf16", "f32.auto". Workers that continue with
 * each other's keys and values, and prompts that are kept, must have the same. */
const char *fv_engine_sums(const fv_engine *e);

/* Parses a value of fv_engine_options.kv_dtype, for products in `compute`. FV_EINVAL names the
 * valid ones. */
fv_status fv_engine_kv_dtype(const char *name, fv_compute compute, fv_dtype *out);

#endif
