#ifndef FOVEA_KERNELS_TENSOR_H
#define FOVEA_KERNELS_TENSOR_H

/* What an operation is given: a row-major matrix of some type, borrowed.
 *
 * A vector of n elements is one row of n columns. `ld` is the distance between rows in
 * elements, so a view may be a band of columns of a wider matrix. Weights are contiguous
 * (ld == cols) and as stored in the checkpoint, [out, in] for a linear layer. */
#include <stddef.h>
#include <stdint.h>

typedef enum fv_dtype { FV_F32 = 0, FV_BF16, FV_F16, FV_N_DTYPE } fv_dtype;

typedef struct fv_tensor {
    void *data; /* address on the backend's device; weights are never written through it */
    fv_dtype dtype;
    int32_t rows, cols, ld;
} fv_tensor; /* data == NULL: absent */

static inline size_t fv_dtype_bytes(fv_dtype t) { return t == FV_F32 ? 4 : 2; }

/* "f32", "bf16", "f16": as in options and reports. */
static inline const char *fv_dtype_name(fv_dtype t) {
    return t == FV_F32 ? "f32" : t == FV_BF16 ? "bf16" : "f16";
}

static inline fv_tensor fv_tensor_of(void *data, fv_dtype dtype, int32_t rows, int32_t cols) {
    fv_tensor t = {data, dtype, rows, cols, cols};
    return t;
}

/* Rows [row0, row0 + rows) of t. */
static inline fv_tensor fv_tensor_rows(fv_tensor t, int32_t row0, int32_t rows) {
    t.data = (char *)t.data + (size_t)row0 * (size_t)t.ld * fv_dtype_bytes(t.dtype);
    t.rows = rows;
    return t;
}

#endif
