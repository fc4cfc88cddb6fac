#ifndef FOVEA_MODEL_QUANTIZE_H
#define FOVEA_MODEL_QUANTIZE_H

/* WEIGHTS in fewer bits than a checkpoint has them (fv_quant in kernels/tensor.h).
 *
 *   int8      per row: scale = max |w| / 127, integer = rint(w / scale)
 *   int4      per row and 32 columns, int4-128: 128. m, the number of largest magnitude, becomes the
 *             integer 0: scale = bf16(-m / 8), integer = min(rint(w / scale) + 8, 15)
 * (the rule of Q4_0 in GGUF: 16 values where a symmetric range has 15). With each of them the output head is
 *
 *   int8 in groups   per row and 32 columns: scale = bf16(max |w| / 127), integer = rint(w / scale), at most 127
 */
#include <stdbool.h>

#include "common/status.h"
#include "kernels/tensor.h"

typedef struct fv_weights {
    const char *name; /* "int8": as in options and reports */
    fv_dtype dtype;
    int32_t group;           /* columns of a scale; 0: a row */
    const char *fingerprint; /* another one whenever their product has other bits */
} fv_weights;

/* The row called `name`; NULL or "stored": *out = NULL, as the checkpoint has them. FV_EINVAL for
 * another. Borrowed, valid forever. */
fv_status fv_weights_find(const char *name, const fv_weights **out);

/* What the output head becomes. */
extern const fv_weights fv_weights_head;

/* Bytes of what fv_quantize writes for w. */
size_t fv_quantize_bytes(const fv_tensor *w, const fv_weights *to);

/* w, of any floating-point type, as integers in `memory`, which *out borrows. False where w holds a
 * number that is not finite; then *out is of no use. Any thread. */
bool fv_quantize(const fv_tensor *w, const fv_weights *to, void *memory, fv_tensor *out);

#endif
