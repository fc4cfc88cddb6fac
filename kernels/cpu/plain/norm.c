/* LayerNorm and RMSNorm, element by element. */
#include "kernels/cpu/plain/plain.h"

/* The canonical sum of (x - mean)^2. */
static float squares(const float *x, size_t n, float mean) {
    float acc[16] = {0};
    for (size_t k = 0; k < n; k++) acc[k % 16] = fmaf(x[k] - mean, x[k] - mean, acc[k % 16]);
    return plain_tree(acc);
}

void fv_plain_norm(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_norm_args *a = args;
    size_t n = (size_t)a->x.cols;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_f32(&a->x, r);
        float *y = row_f32(&a->y, r), mean = a->rms ? 0.0f : plain_sum(x, n) / (float)n;
        float scale = sqrtf(squares(x, n, mean) / (float)n + a->eps);
        for (size_t k = 0; k < n; k++) {
            float normed = (x[k] - mean) / scale * widened(a->w.data, a->w.dtype, k);
            y[k] = a->b.data ? normed + widened(a->b.data, a->b.dtype, k) : normed;
        }
    }
}

fv_status fv_check_norm(const void *args, fv_cpu_rows *out) {
    const fv_norm_args *a = args;
    FV_TRY(need_f32(&a->x, "norm's x"));
    FV_TRY(need_f32(&a->y, "norm's y"));
    assert(same_shape(&a->x, &a->y) && a->w.data);
    assert(is_vector_of(&a->w, a->x.cols) && is_vector_of(&a->b, a->x.cols));
    *out = (fv_cpu_rows){a->x.rows, a->x.cols};
    return FV_OK;
}
