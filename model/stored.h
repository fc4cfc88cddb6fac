#ifndef FOVEA_MODEL_STORED_H
#define FOVEA_MODEL_STORED_H

/* WEIGHTS AS OTHER PROGRAMS HAVE QUANTIZED THEM: a table of forms, a file of stored_*.c each. (The integers of
 * compressed-tensors in 4 bits, and in 8 with integer activations, are in model/compressed.h; blocks of GGUF
 * in model/gguf_weights.h.)
 *
 * A linear layer X [N, K] is stored in some tensors, X.qweight and X.scales for instance. They become one view
 * that products read packed (fv_quant in kernels/tensor.h): integers of 4 or 8 bits or codes of a table, with
 * scales along K. Integers are repacked, or borrowed where the file has them in this order. A number is
 *
 *     scale * integer,   scale * (integer - zero)   or   scale * table[code]
 *
 * as the reference of the form computes it. Which weights are quantized follows from the tensors in the files,
 * not from lists of names in a config. */
#include "common/arena.h"
#include "model/families/tensor_specs.h"
#include "model/shards.h"

typedef enum fv_stored_method {
    FV_STORED_NONE = 0,   /* nothing is quantized, or not in one of these forms */
    FV_STORED_AWQ,        /* AutoAWQ, layout gemm */
    FV_STORED_GPTQ,       /* AutoGPTQ and GPTQModel */
    FV_STORED_FP8,        /* transformers' finegrained_fp8 */
    FV_STORED_COMPRESSED, /* compressed-tensors */
    FV_STORED_BNB,        /* bitsandbytes */
} fv_stored_method;

/* The contents of a quantization_config, as far as tensors do not say the same. */
typedef struct fv_stored_config {
    fv_stored_method method;
    bool zero_is_less_one; /* GPTQ: zero points are stored less 1 */
    bool kv_cache;         /* keys and values were to be quantized too (kv_cache_scheme) */
    int32_t block[2];      /* FP8: rows and columns with one scale */
    const int32_t *order;  /* the order of the last weight that has one, [n_order]; in the arena */
    int32_t n_order;
} fv_stored_config;

enum { FV_STORED_PARTS = 8 };

/* A weight in a stored form. */
typedef struct fv_stored_weight {
    const struct fv_stored_form *form; /* NULL: in none */
    const fv_safetensors_entry
        *part[FV_STORED_PARTS]; /* in the order of the form's parts, or NULL */
    const char *file;           /* of the first part */
    fv_stored_config *config;
    fv_quant *quant; /* that of the view */
    fv_tensor view;  /* filled by fv_stored_fill */
    size_t bytes;    /* of what the view reads, in memory and in the files */
} fv_stored_weight;

/* Puts quantize_config.json (AutoGPTQ) or quant_config.json (AutoAWQ) of the folder into the text of config.json, if
 * that has no quantization_config; *text is replaced then, and freed. Errors name the file. */
fv_status fv_stored_join_config(const char *dir, char **text, size_t *bytes);

/* Reads the "quantization_config" of config.json (or of its text_config). FV_EUNSUPPORTED names a version or
 * setting that is not read, and what to do. */
fv_status fv_stored_parse(const char *config, size_t bytes, const char *where,
                          fv_stored_config *out);

/* Finds the tensors of weight `e`; *found NULL: it is in none of these forms. Otherwise the tensor in the files
 * that has the integers. FV_EUNSUPPORTED for a quantized weight of a kind that is never multiplied as integers.
 * `config` must outlive the weight. */
fv_status fv_stored_find(fv_stored_config *config, const fv_shards *sh, const fv_tensor_spec *e,
                         fv_stored_weight *out, const fv_shard_tensor **found);

/* Checks the tensors' types and shapes, and makes w->view; its memory is in the arena or in the files. FV_EDATA,
 * FV_ENOTFOUND, FV_EUNSUPPORTED name the tensor. */
fv_status fv_stored_place(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena);

/* Fills the view. Returns false if a number is not finite. Any thread. */
bool fv_stored_fill(const fv_stored_weight *w);

/* "awq": the name of the form, for log lines and messages. */
const char *fv_stored_name(const fv_stored_weight *w);

/* Returns whether the network computes the same without tensor `t`: a scale of quantized keys or values
 * (kv_cache_scheme is not followed), or a bias of zeros, which AutoGPTQ writes for layers that have none. */
bool fv_stored_is_unused(const fv_stored_config *config, const fv_shard_tensor *t);

/* Returns whether `canonical` belongs to a quantized weight of the method, whose name goes to `weight`. */
bool fv_stored_belongs(const fv_stored_config *config, const char *canonical,
                       char weight[FV_TENSOR_NAME_MAX]);

#endif
