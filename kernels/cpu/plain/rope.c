/* Rotary position embedding, pair by pair. */
#include "kernels/cpu/plain/plain.h"

void fv_plain_rope(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_rope_args *a = args;
    int32_t half = a->cos.cols;
    (void)scratch;
    for (int64_t r = begin; r < end; r++)
        for (int32_t h = 0; h < a->n_head; h++)
            for (int32_t i = 0; i < half; i++) {
                float *x = row_f32(&a->x, r) + (ptrdiff_t)h * 2 * half + i;
                float c = row_f32(&a->cos, r)[i], s = row_f32(&a->sin, r)[i], lo = x[0],
                      hi = x[half];
                x[0] = fmaf(lo, c, -(hi * s));
                x[half] = fmaf(hi, c, lo * s);
            }
}

fv_status fv_check_rope(const void *args, fv_cpu_rows *out) {
    const fv_rope_args *a = args;
    FV_TRY(need_f32(&a->x, "rope's x"));
    FV_TRY(need_f32(&a->cos, "rope's cos"));
    FV_TRY(need_f32(&a->sin, "rope's sin"));
    assert(same_shape(&a->cos, &a->sin) && a->cos.rows == a->x.rows);
    assert(a->x.cols == a->n_head * 2 * a->cos.cols);
    *out = (fv_cpu_rows){a->x.rows, a->x.cols};
    return FV_OK;
}
