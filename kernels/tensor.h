#ifndef FOVEA_KERNELS_TENSOR_H
#define FOVEA_KERNELS_TENSOR_H

/* The operand of an operation: a row-major matrix of some type, borrowed.
 *
 * A vector of n elements is one row of n columns. `ld` is the distance between rows in
 * elements, so a view may be a band of columns of a wider matrix. Weights are contiguous
 * (ld == cols) and as stored in the checkpoint, [out, in] for a linear layer. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/dtype.h"

/* How a weight [rows, cols] in integers is decoded. All arrays are borrowed. With `table`, integers are
 * codes: a code counts as the number of the table, where "integer" stands below, and `zero` is absent.
 *     int8   integer * scale[row]                                 rows of `cols` bytes
 *     with groups, g = col / group, and rows of `row_bytes` bytes:
 *     int8   bf16(fma(scale[row, g], integer, -min[row, g])); in groups of 32 or 16 without `min` and `table`,
 *            and in any with `integers`, the dot product is in integers (kernels/ops.h)
 *     int4   bf16(fma(scale[row, g], integer - zero[row, g], -min[row, g]))
 *            integers 0..15, an even column in the low half of a byte; with `integers` the dot product is in
 *            integers too
 * Products in integers do not read `zero` and `min`. They multiply scale * integer, or scale * (integer - 8) of 4
 * bits, and `offset` is what that lacks. */
typedef struct fv_quant {
    const void *scale; /* [rows] F32, or [rows, groups] of scale_type */
    fv_dtype scale_type;
    int32_t group,
        groups; /* columns of a group, a multiple of 32, for int8 also 16 or 0; groups of a row */
    const uint8_t *zero; /* [rows, groups]; NULL: 8, or 0 with `min` or `table` */
    const float *min;    /* [rows, groups]; NULL: 0 */
    const float
        *table; /* int8: [256], by the code as an unsigned byte; int4: [16]; NULL: integers */
    const int32_t *order; /* [cols] the column of x that meets column k of the weight; NULL: k */
    size_t row_bytes;
    const float *offset; /* [rows, groups], with `integers`; NULL: 0 */
    bool integers;       /* dot products in integers; without `table` */
} fv_quant;

typedef struct fv_tensor {
    void *data; /* address on the backend's device; weights are never written through it */
    fv_dtype dtype;
    int32_t rows, cols, ld;
    const fv_quant *quant; /* for FV_INT8 and FV_INT4; otherwise NULL */
} fv_tensor;               /* data == NULL: absent */

static inline fv_tensor fv_tensor_of(void *data, fv_dtype dtype, int32_t rows, int32_t cols) {
    fv_tensor t = {data, dtype, rows, cols, cols, 0};
    return t;
}

/* Rows [row0, row0 + rows) of t. */
static inline fv_tensor fv_tensor_rows(fv_tensor t, int32_t row0, int32_t rows) {
    t.data = (char *)t.data + (size_t)row0 * (size_t)t.ld * fv_dtype_bytes(t.dtype);
    t.rows = rows;
    return t;
}

/* Rows [row0, row0 + rows) of a weight, which may be in integers: *quant, if not NULL, becomes that of
 * the rows, which borrow it. */
static inline fv_tensor fv_weight_rows(fv_tensor w, int32_t row0, int32_t rows, fv_quant *quant) {
    if (!w.quant) return fv_tensor_rows(w, row0, rows);
    const fv_quant *q = w.quant;
    const size_t at = (size_t)row0 * (size_t)(q->group ? q->groups : 1);
    *quant = *q;
    quant->scale = (const char *)q->scale + at * fv_dtype_bytes(q->group ? q->scale_type : FV_F32);
    if (q->zero) quant->zero = q->zero + at;
    if (q->min) quant->min = q->min + at;
    if (q->offset) quant->offset = q->offset + at;
    w.data = (char *)w.data + (size_t)row0 * (q->group ? q->row_bytes : (size_t)w.cols);
    w.rows = rows;
    w.quant = quant;
    return w;
}

#endif
