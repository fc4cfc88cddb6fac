#ifndef FOVEA_MODEL_TRANSPOSE_H
#define FOVEA_MODEL_TRANSPOSE_H

/* Experts whose matrices are transposed in the files: [E, in, out] -> rows of [E out, in], as products
 * read weights. */
#include "model/quantize.h"

/* Matrices in a file, whose bytes may be unaligned. */
typedef struct fv_transposed {
    const void *data;
    fv_dtype dtype; /* F32, BF16 or F16 */
    int32_t n, n_in, n_out;
} fv_transposed;

/* Writes rows [row0, row0 + rows) of [n n_out, n_in] to `to`, of the same type. */
void fv_transpose_rows(const fv_transposed *from, int32_t row0, int32_t rows, void *to);

/* Quantizes all of them into `memory`, of fv_quantize_bytes; *out as from fv_quantize. FV_EDATA: a
 * number is not finite; FV_ENOMEM. Any thread. */
fv_status fv_transpose_quantize(const fv_transposed *from, const fv_weights *to, void *memory,
                                fv_tensor *out);

#endif
