#ifndef FOVEA_GGUF_RECURRENT_H
#define FOVEA_GGUF_RECURRENT_H

/* RECURRENT LAYERS in GGUF files (qwen35, qwen35moe): their sizes, which say how tensors are ordered. */
#include "gguf/gguf.h"

typedef struct fv_gguf_recurrent {
    int32_t n_key, n_value; /* heads */
    int32_t d_key, d_value; /* width of a head */
    int32_t taps;           /* of the convolution */
    int32_t n_layer; /* layers of the file, without those that predict tokens further ahead */
} fv_gguf_recurrent;

/* Reads "<arch>.ssm.*". FV_EDATA: a key is missing, or they do not fit together. */
fv_status fv_gguf_recurrent_of(const fv_gguf *g, const char *arch, fv_gguf_recurrent *out);

#endif
