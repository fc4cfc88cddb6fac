/* g = x x^T in double: an item is one row of the result. */
#include "kernels/cpu/plain/plain.h"

fv_cpu_plan fv_plain_syrk_plan(const void *args) {
    const fv_syrk_args *a = args;
    return (fv_cpu_plan){.n_item = a->x.rows, .grain = 1};
}

static double dot(const float *x, const float *y, size_t K) {
    double acc[8] = {0};
    for (size_t k = 0; k < K; k++) acc[k % 8] += (double)x[k] * (double)y[k];
    for (size_t s = 4; s > 0; s /= 2)
        for (size_t i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

void fv_plain_syrk(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_syrk_args *a = args;
    (void)scratch;
    for (int64_t m = begin; m < end; m++)
        for (int64_t n = 0; n <= m; n++)
            a->g[m * a->x.rows + n] = dot(row_f32(&a->x, m), row_f32(&a->x, n), (size_t)a->x.cols);
}
