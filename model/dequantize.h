#ifndef FOVEA_MODEL_DEQUANTIZE_H
#define FOVEA_MODEL_DEQUANTIZE_H

/* WEIGHTS IN INTEGERS AS NUMBERS (fv_quant in kernels/tensor.h): scale * (integer - zero) - min or
 * scale * table[code], in f32 with one rounding, then rounded to a type. An `order` is undone: numbers are in
 * the order of the network's columns. */
#include "kernels/tensor.h"

/* Writes the numbers of w, [w->rows, w->cols] of `type`, to `out`. Any thread. */
void fv_dequantize(const fv_tensor *w, fv_dtype type, void *out);

#endif
