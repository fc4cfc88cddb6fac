/* The product that the plugin asks of cuBLAS, as a kernel of the plainest kind: one thread per
 * element, k = 0, 1, ... Stands in for kernels/cuda/blas.c. */
#include "kernels/cuda/gpu.h"

struct fv_blas {
    cudaStream_t stream;
};

extern "C" fv_status fv_blas_open(cudaStream_t stream, fv_blas **out) {
    *out = new fv_blas{stream};
    return FV_OK;
}

extern "C" void fv_blas_close(fv_blas *b) { delete b; }

static void gemm(fv_tensor x, fv_tensor w, fv_tensor y, float beta) {
    int n = (int)(blockIdx.x * blockDim.x + threadIdx.x), m = (int)blockIdx.y;
    if (n >= y.cols) return;
    float sum = 0.0f;
    for (int k = 0; k < x.cols; k++)
        sum = fmaf(widened(x.data, x.dtype, (size_t)m * (size_t)x.ld + (size_t)k),
                   widened(w.data, w.dtype, (size_t)n * (size_t)w.ld + (size_t)k), sum);
    float *to = static_cast<float *>(y.data) + (size_t)m * (size_t)y.ld + n;
    *to = beta == 0.0f ? sum : sum + beta * *to;
}

extern "C" fv_status fv_blas_gemm(fv_blas *b, const fv_tensor *x, const fv_tensor *w,
                                  const fv_tensor *y, float beta) {
    FV_LAUNCH(gemm, dim3((unsigned)(y->cols + 63) / 64, (unsigned)y->rows), dim3(64), 0, b->stream,
              *x, *w, *y, beta);
    return FV_OK;
}
