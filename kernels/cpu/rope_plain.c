/* Rotary position embedding, pair by pair. */
#include "kernels/cpu/plain.h"

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
