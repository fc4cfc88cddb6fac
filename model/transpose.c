/* Transposes experts' matrices, some rows at a time: a line of the file is read once for all of them.
 * Quantizing transposes into a small buffer, so that no transposed copy of the experts exists. */
#include "model/transpose.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 64 };

/* Copies columns [first, first + rows) of one matrix to rows of `to`; size is that of an element. */
static inline void copy_columns(const char *from, int32_t n_in, int32_t n_out, int32_t first,
                                int32_t rows, const size_t size, char *to) {
    for (int32_t i = 0; i < n_in; i++) {
        const char *line = from + ((size_t)i * (size_t)n_out + (size_t)first) * size;
        for (int32_t r = 0; r < rows; r++)
            memcpy(to + ((size_t)r * (size_t)n_in + (size_t)i) * size, line + (size_t)r * size,
                   size);
    }
}

void fv_transpose_rows(const fv_transposed *f, int32_t row0, int32_t rows, void *to) {
    const size_t size = fv_dtype_bytes(f->dtype);
    const size_t matrix = (size_t)f->n_in * (size_t)f->n_out * size;
    char *at = to;
    for (int32_t done = 0, some; done < rows; done += some) {
        const int32_t row = row0 + done, first = row % f->n_out;
        const char *from = (const char *)f->data + (size_t)(row / f->n_out) * matrix;
        some = f->n_out - first;
        if (some > rows - done) some = rows - done;
        if (some > ROWS) some = ROWS;
        if (size == 2)
            copy_columns(from, f->n_in, f->n_out, first, some, 2, at);
        else
            copy_columns(from, f->n_in, f->n_out, first, some, 4, at);
        at += (size_t)some * (size_t)f->n_in * size;
    }
}

fv_status fv_transpose_quantize(const fv_transposed *f, const fv_weights *to, void *memory,
                                fv_tensor *out) {
    const int32_t all = f->n * f->n_out;
    char *part = malloc((size_t)ROWS * (size_t)f->n_in * fv_dtype_bytes(f->dtype));
    if (!part) return FV_FAIL(FV_ENOMEM, "no memory to transpose %d rows of experts", ROWS);
    bool finite = true;
    fv_quantize_begin(all, f->n_in, to, memory, out);
    for (int32_t row = 0; row < all && finite; row += ROWS) {
        const int32_t rows = all - row < ROWS ? all - row : ROWS;
        fv_transpose_rows(f, row, rows, part);
        const fv_tensor w = fv_tensor_of(part, f->dtype, rows, f->n_in);
        finite = fv_quantize_rows(&w, to, row, out);
    }
    free(part);
    return finite ? FV_OK : FV_FAIL(FV_EDATA, "a number is not finite");
}
