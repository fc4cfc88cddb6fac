/* The products that the plugin asks of cuBLAS, as kernels; the one of every layer has a thread per
 * row and SPAN columns, each sum in lanes that a compiler makes vectors of. Stands in for
 * kernels/cuda/library/blas.c. */
#include <cstdlib>

#include "kernels/cuda/gpu.h"

enum { SPAN = 16, LANES = 16, THREADS = 16 };

struct fv_blas {
    cudaStream_t stream;
    bool splits;
};

/* FOVEA_EMULATED_BLAS=splits: sums over halves of K where a product has many rows, as a library may. */
extern "C" fv_status fv_blas_open(cudaStream_t stream, size_t, fv_blas **out) {
    const char *asked = getenv("FOVEA_EMULATED_BLAS");
    *out = new fv_blas{stream, asked && strcmp(asked, "splits") == 0};
    return FV_OK;
}

extern "C" void fv_blas_close(fv_blas *b) { delete b; }

template <fv_dtype TYPE> static float number(const void *p, size_t i) {
    if (TYPE == FV_BF16) return f32_of_bits((uint32_t) static_cast<const uint16_t *>(p)[i] << 16);
    return widened(p, TYPE, i);
}

template <fv_dtype TYPE>
static float dot(const fv_tensor &x, size_t x0, const fv_tensor &w, size_t w0, size_t k, size_t n) {
    float lane[LANES] = {}, sum = 0.0f;
    for (; k + LANES <= n; k += LANES)
        for (size_t i = 0; i < LANES; i++)
            lane[i] += number<TYPE>(x.data, x0 + k + i) * number<TYPE>(w.data, w0 + k + i);
    for (; k < n; k++) sum += number<TYPE>(x.data, x0 + k) * number<TYPE>(w.data, w0 + k);
    for (float l : lane) sum += l;
    return sum;
}

enum { MANY_ROWS = 64 };

template <fv_dtype TYPE>
static void gemm(fv_tensor x, fv_tensor w, fv_tensor y, float beta, bool splits) {
    size_t K = (size_t)x.cols, half = splits && x.rows >= MANY_ROWS ? K / 2 : 0;
    int n0 = (int)(blockIdx.x * blockDim.x + threadIdx.x) * SPAN, m = (int)blockIdx.y;
    for (int n = n0; n < n0 + SPAN && n < y.cols; n++) {
        size_t x0 = (size_t)m * (size_t)x.ld, w0 = (size_t)n * (size_t)w.ld;
        float sum = dot<TYPE>(x, x0, w, w0, half, K);
        if (half) sum += dot<TYPE>(x, x0, w, w0, 0, half);
        float *to = static_cast<float *>(y.data) + (size_t)m * (size_t)y.ld + n;
        *to = beta == 0.0f ? sum : sum + beta * *to;
    }
}

extern "C" fv_status fv_blas_gemm(fv_blas *b, const fv_tensor *x, const fv_tensor *w,
                                  const fv_tensor *y, float beta) {
    dim3 grid(fv_cuda_blocks(y->cols, SPAN * THREADS), (unsigned)y->rows), block(THREADS);
    if (x->dtype == FV_BF16)
        FV_LAUNCH(gemm<FV_BF16>, grid, block, 0, b->stream, *x, *w, *y, beta, b->splits);
    else if (x->dtype == FV_F16)
        FV_LAUNCH(gemm<FV_F16>, grid, block, 0, b->stream, *x, *w, *y, beta, b->splits);
    else
        FV_LAUNCH(gemm<FV_F32>, grid, block, 0, b->stream, *x, *w, *y, beta, b->splits);
    return FV_OK;
}

static void matmul_nn(fv_tensor x, fv_tensor w, fv_tensor y) {
    int n = (int)(blockIdx.x * blockDim.x + threadIdx.x), m = (int)blockIdx.y;
    if (n >= y.cols) return;
    const float *a = static_cast<const float *>(x.data) + (size_t)m * (size_t)x.ld;
    const float *b = static_cast<const float *>(w.data) + n;
    float sum = 0.0f;
    for (int k = 0; k < x.cols; k++) sum = fmaf(a[k], b[(size_t)k * (size_t)w.ld], sum);
    static_cast<float *>(y.data)[(size_t)m * (size_t)y.ld + n] = sum;
}

extern "C" fv_status fv_blas_matmul_nn(fv_blas *b, const fv_tensor *x, const fv_tensor *w,
                                       const fv_tensor *y) {
    FV_LAUNCH(matmul_nn, dim3((unsigned)(y->cols + 63) / 64, (unsigned)y->rows), dim3(64), 0,
              b->stream, *x, *w, *y);
    return FV_OK;
}

extern "C" fv_status fv_blas_gram(fv_blas *b, const fv_tensor *x, const fv_tensor *y) {
    return fv_blas_gemm(b, x, x, y, 0.0f);
}
