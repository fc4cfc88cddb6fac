#ifndef FOVEA_MODEL_GGUF_WEIGHTS_H
#define FOVEA_MODEL_GGUF_WEIGHTS_H

/* WEIGHTS OF GGUF FILES. Two things are stored otherwise than the network reads them, and are repacked in memory:
 *
 * Blocks. A block of 32 or 256 numbers holds its integers and their scales; number i of group g is
 *     scale[g] * integer[i] - min[g]
 * exactly what gguf-py's dequantization computes in f32. A linear layer gets the integers, as FV_INT4 or
 * FV_INT8 (kernels/tensor.h): products decode them to bf16, or multiply the integers of Q8_0, Q5_0 and
 * Q6_K; what is looked up by row or is no matrix gets the numbers themselves, rounded to bf16.
 *
 * Rows of queries and keys of the architecture llama, which rotates neighbours (2i, 2i + 1) of a head,
 * where Hugging Face's rotates (i, i + D/2): llama.cpp's converter has reordered them, and they go back. */
#include "common/arena.h"
#include "kernels/tensor.h"

/* Whether `type` is one of blocks. */
bool fv_gguf_is_blocks(const char *type);

typedef struct fv_gguf_weight {
    const char *type; /* "Q4_K", "F16", ... */
    const void *data; /* as in the file */
    int32_t heads;    /* their rows go back to where they were; 0: rows stay */
    fv_tensor view;   /* what fv_gguf_fill fills */
} fv_gguf_weight;

/* Memory in the arena for a weight of `rows` and `cols`, and w->view; as integers if `linear`. */
fv_status fv_gguf_place(fv_gguf_weight *w, int32_t rows, int32_t cols, bool linear,
                        fv_arena *arena);

/* Bytes that the view takes. */
size_t fv_gguf_bytes(const fv_gguf_weight *w);

/* Fills w->view's memory. False where a scale is not finite. Any thread. */
bool fv_gguf_fill(const fv_gguf_weight *w);

#endif
