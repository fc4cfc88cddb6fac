/* y = x w: an item is one output row. */
#include "kernels/cpu/plain/plain.h"

fv_cpu_plan fv_plain_matmul_nn_plan(const void *args) {
    const fv_matmul_nn_args *a = args;
    return (fv_cpu_plan){.n_item = a->y.rows, .grain = 1};
}

void fv_plain_matmul_nn(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_matmul_nn_args *a = args;
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(&a->x, m);
        float *y = row_f32(&a->y, m);
        for (int32_t n = 0; n < a->w.cols; n++) y[n] = 0.0f;
        for (int32_t k = 0; k < a->w.rows; k++)
            for (int32_t n = 0; n < a->w.cols; n++) {
                size_t at = (size_t)k * (size_t)a->w.ld + (size_t)n;
                y[n] = fmaf(x[k], widened(a->w.data, a->w.dtype, at), y[n]);
            }
    }
}
