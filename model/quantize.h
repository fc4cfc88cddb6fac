#ifndef FOVEA_MODEL_QUANTIZE_H
#define FOVEA_MODEL_QUANTIZE_H

/* WEIGHTS in fewer bits than in the checkpoint (fv_quant in kernels/tensor.h).
 *
 *   int8      per row: scale = max |w| / 127, integer = rint(w / scale)
 *   int4      per row and 32 columns, int4-128: 128 columns. m, the number of largest magnitude,
 *             becomes the integer 0: scale = bf16(-m / 8), integer = min(rint(w / scale) + 8, 15)
 *             (the rule of Q4_0 in GGUF: 16 values where a symmetric range has 15)
 *
 * In all of them the output head is int8 in groups, per row and 32 columns:
 *             scale = bf16(max |w| / 127), integer = min(rint(w / scale), 127)
 *
 *   dequantized   the other way: weights that files have in integers become numbers (model/dequantize.h)
 *   exact         weights that files have in integers are decoded in products, and activations are not quantized */
#include <stdbool.h>

#include "common/status.h"
#include "kernels/tensor.h"

typedef struct fv_weights {
    const char *name; /* "int8": as in options and reports */
    fv_dtype dtype;   /* FV_F32: numbers, of the embedding's type; FV_BF16: decoded in products */
    int32_t group;    /* columns per scale; 0: one scale per row */
    const char *fingerprint; /* differs whenever the bits of their products differ */
} fv_weights;

/* Finds the row called `name`. NULL or "stored": *out = NULL, the checkpoint's own weights.
 * FV_EINVAL for other names. Borrowed, valid forever. */
fv_status fv_weights_find(const char *name, const fv_weights **out);

static inline bool fv_weights_are_numbers(const fv_weights *to) {
    return to && to->dtype == FV_F32;
}

static inline bool fv_weights_are_exact(const fv_weights *to) { return to && to->dtype == FV_BF16; }

/* Returns whether weights are quantized into this form. */
static inline bool fv_weights_are_integers(const fv_weights *to) {
    return to && !fv_weights_are_numbers(to) && !fv_weights_are_exact(to);
}

/* Format of the output head. */
extern const fv_weights fv_weights_head;

/* Bytes that fv_quantize writes for w. */
size_t fv_quantize_bytes(const fv_tensor *w, const fv_weights *to);

/* Quantizes w, of any floating-point type, into `memory`, which *out borrows. Returns false if w
 * holds a number that is not finite; *out is unusable then. Any thread. */
bool fv_quantize(const fv_tensor *w, const fv_weights *to, void *memory, fv_tensor *out);

/* The same in parts: *out, of rows x cols, borrows `memory`, and fv_quantize_rows fills its rows from
 * row0 on with those of w. */
void fv_quantize_begin(int32_t rows, int32_t cols, const fv_weights *to, void *memory,
                       fv_tensor *out);
bool fv_quantize_rows(const fv_tensor *w, const fv_weights *to, int32_t row0, fv_tensor *out);

#endif
