/* Rotary position embedding: a thread rotates one pair. */
#include <assert.h>

#include "kernels/cuda/elements.cuh"

static __global__ void rope_kernel(fv_rope_args a) {
    int64_t half = a.cos.cols, pairs = a.n_head * half, n = a.x.rows * pairs;
    for (int64_t i = first_element(); i < n; i += element_stride()) {
        int64_t row = i / pairs, head = i % pairs / half, d = i % half;
        float *lo = f32_at(a.x, row, head * 2 * half + d), *hi = lo + half;
        float c = *f32_at(a.cos, row, d), s = *f32_at(a.sin, row, d), x = *lo, y = *hi;
        *lo = fmaf(x, c, -(y * s));
        *hi = fmaf(y, c, x * s);
    }
}

extern "C" fv_status fv_cuda_rope(fv_backend *be, const fv_rope_args *a) {
    FV_TRY(need_f32(&a->x, "rope's x"));
    FV_TRY(need_f32(&a->cos, "rope's cos"));
    FV_TRY(need_f32(&a->sin, "rope's sin"));
    assert(a->x.cols == a->n_head * 2 * a->cos.cols);
    int64_t n = (int64_t)a->x.rows * a->n_head * a->cos.cols;
    if (n == 0) return FV_OK;
    FV_LAUNCH(rope_kernel, grid_of(n), dim3(BLOCK), 0, fv_cuda_of(be)->stream, *a);
    return fv_cuda_launched("rope");
}
