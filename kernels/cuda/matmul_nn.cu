/* y = x w, w [K, N] row-major, in the CPU's order. No forward pass has such weights; factors do. */
#include <assert.h>

#include "kernels/cuda/gpu.h"

enum { BLOCK = 128 };

/* A thread computes one element, its chain over k. */
static __global__ void matmul_nn_kernel(fv_matmul_nn_args a) {
    int n = (int)(blockIdx.x * BLOCK + threadIdx.x);
    if (n >= a.y.cols) return;
    for (int m = (int)blockIdx.y; m < a.y.rows; m += (int)gridDim.y) {
        const float *x = static_cast<const float *>(a.x.data) + (size_t)m * (size_t)a.x.ld;
        float y = 0.0f;
        for (int k = 0; k < a.x.cols; k++)
            y = fmaf(x[k], widened(a.w.data, a.w.dtype, (size_t)k * (size_t)a.w.ld + (size_t)n), y);
        static_cast<float *>(a.y.data)[(size_t)m * (size_t)a.y.ld + (size_t)n] = y;
    }
}

extern "C" fv_status fv_cuda_matmul_nn(fv_backend *be, const fv_matmul_nn_args *a) {
    if (a->x.dtype != FV_F32 || a->y.dtype != FV_F32)
        return FV_FAIL(FV_EUNSUPPORTED, "the CUDA backend needs activations in f32");
    assert(a->w.rows == a->x.cols && a->w.cols == a->y.cols && a->x.rows == a->y.rows);
    if (a->y.rows == 0 || a->y.cols == 0) return FV_OK;
    dim3 grid(fv_cuda_blocks(a->y.cols, BLOCK), (unsigned)min(a->y.rows, 65535));
    FV_LAUNCH(matmul_nn_kernel, grid, dim3(BLOCK), 0, fv_cuda_of(be)->stream, *a);
    return fv_cuda_launched("matmul_nn");
}
