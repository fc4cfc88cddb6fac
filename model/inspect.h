#ifndef FOVEA_MODEL_INSPECT_H
#define FOVEA_MODEL_INSPECT_H

/* INSPECT: what a checkpoint is and whether it can be served, from its configs and the headers of its weight
 * files. No weight is read. Unlike fv_checkpoint_open it goes on after a fault, so that all are known at once. */
#include "common/arena.h"
#include "model/checkpoint.h"

/* Its texts are UTF-8 without control characters, whatever files are called. */
typedef struct fv_fault {
    const char *file;   /* its path */
    const char *what;   /* the fault, a sentence */
    const char *remedy; /* what to do about it */
    bool fatal;         /* the checkpoint cannot be served; false: part of it is not used */
} fv_fault;

enum { FV_INSPECT_FAULTS = 64, FV_INSPECT_DTYPES = 12 };

/* Number and bytes of the tensors of one type in the files. */
typedef struct fv_inspected_dtype {
    char name[12];
    int32_t n;
    uint64_t bytes;
} fv_inspected_dtype;

typedef struct fv_inspection {
    const char *path, *shown;          /* shown: in UTF-8 without control characters */
    bool can_serve;                    /* no fault is fatal */
    fv_fault fault[FV_INSPECT_FAULTS]; /* [n_fault]; of more, the first */
    int32_t n_fault;
    bool has_config;          /* config.json describes a network: */
    fv_model_config config;   /* this one */
    const char *quantization; /* its method as in config.json, or of a GGUF file; "none" */
    bool has_weights;         /* all tensors are there: */
    uint64_t n_param;         /* numbers of the network, */
    uint64_t weight_bytes;    /* their bytes in the files, without */
    uint64_t table_bytes; /* those of the table of per-layer embeddings, which stays a mapping, */
    int32_t n_file, n_tensor, n_unused;          /* and the tensors that are not used */
    uint64_t file_bytes;                         /* of all tensors in the files */
    fv_inspected_dtype dtype[FV_INSPECT_DTYPES]; /* [n_dtype], most bytes first */
    int32_t n_dtype;
    fv_dtype embed_dtype; /* what the types of products and of the KV cache follow */
    int32_t n_token;      /* of the tokenizer; 0: it cannot be read */
    const char *chat;     /* name of the chat template; NULL: it cannot be used */
    fv_arena arena;       /* private: owns the texts */
} fv_inspection;

/* Inspects a directory or GGUF file; free *out with fv_inspection_free. Faults of the checkpoint are no
 * failure: FV_ENOMEM alone is one. */
fv_status fv_inspect(const char *from, fv_inspection *out);
void fv_inspection_free(fv_inspection *in);

/* Adds the fault of the thread's last error. */
fv_status fv_inspection_add(fv_inspection *in, const char *file, const char *what,
                            const char *remedy, bool fatal);

/* Bytes of the keys and values of one token with this type; of a sequence's recurrent states. */
uint64_t fv_inspection_kv_bytes(const fv_inspection *in, fv_dtype dtype);
uint64_t fv_inspection_state_bytes(const fv_inspection *in);

#endif
