#ifndef FOVEA_MODEL_GGUF_WEIGHTS_H
#define FOVEA_MODEL_GGUF_WEIGHTS_H

/* WEIGHTS OF GGUF FILES. Three kinds of weights are repacked in memory, because the network reads
 * them in another form:
 *
 * Blocks. A block of 32 or 256 numbers holds its integers and their scales; number i of group g is
 *     scale[g] * integer[i] - min[g]
 * exactly what gguf-py's dequantization computes in f32. A linear layer gets the integers, as FV_INT4 or
 * FV_INT8 (kernels/tensor.h): products decode them to bf16, or multiply the integers of Q8_0, Q5_0
 * and Q6_K. Tensors that are looked up by row or are no matrices get the numbers, rounded to bf16.
 *
 * Rows of queries and keys of the architecture llama, and of Pixtral's tower. GGML rotates neighbours (2i, 2i + 1) of a
 * head, Hugging Face (i, i + D/2): llama.cpp's converter reordered the rows, and fv_gguf_fill
 * restores their order.
 *
 * Matrices that the converter cut in several (model/gguf_tensors.h). */
#include "common/arena.h"
#include "kernels/tensor.h"

/* Returns whether `type` is stored in blocks. */
bool fv_gguf_is_blocks(const char *type);

/* Heads of which `each` share one of `n`: head k * each + r of the view is head r * n + k of the file. Their
 * `width` rows, or columns, follow `first` others. each <= 1: heads are in order. */
typedef struct fv_gguf_tiles {
    int32_t n, each, width, first;
    bool columns;
} fv_gguf_tiles;

/* Row or column `i` of the view in the file; or, with `to_view`, the other way round. */
size_t fv_gguf_untile(const fv_gguf_tiles *t, bool to_view, size_t i);

typedef struct fv_gguf_weight {
    const char *type;    /* "Q4_K", "F16", ... */
    const void *data;    /* as in the file */
    const void *more[2]; /* further tensors, whose rows follow: `span` of each in turn */
    int32_t n_more, span;
    fv_gguf_tiles tiles;
    int32_t heads;  /* number of heads whose rows are restored to their order; 0: rows stay */
    fv_tensor view; /* filled by fv_gguf_fill */
} fv_gguf_weight;

/* Allocates memory in the arena for a weight [rows, cols], as integers if `linear`, and sets
 * w->view. */
fv_status fv_gguf_place(fv_gguf_weight *w, int32_t rows, int32_t cols, bool linear,
                        fv_arena *arena);

/* Bytes of the view. */
size_t fv_gguf_bytes(const fv_gguf_weight *w);

/* Fills w->view's memory. Returns false if a scale is not finite. Any thread. */
bool fv_gguf_fill(const fv_gguf_weight *w);

#endif
