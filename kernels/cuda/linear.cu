/* y = x w^T + bias, by cuBLAS or in the canonical order.
 *
 * cuBLAS: x is rounded to the weights' type (f16: saturating), products are summed in F32, in an order
 * that is cuBLAS's own and may change with the number of rows. Relative error of a row against the
 * CPU's: 2^-9 sqrt(2) per product of bf16 weights, and some ulp of F32 with F32 weights.
 *
 * Exact: the canonical dot product, a lane of 16 per thread. Gives the bits of the CPU for any number of
 * rows; no tensor cores. */
#include <assert.h>

#include "kernels/cuda/gpu.h"

enum { BLOCK = 128, HALF_WARPS = BLOCK / FV_LANES, COLUMNS = 4 };

/* ---- exact ----------------------------------------------------------------------------- */

/* A half warp has ROWS x COLUMNS results; its lane i is lane i of each. Shuffles need all threads, so
 * elements outside are computed from the last row or column and not written. */
template <int ROWS> static __global__ void exact_kernel(fv_tensor x, fv_linear_part p) {
    int lane = (int)threadIdx.x % FV_LANES, K = x.cols, M = x.rows, N = p.w.rows;
    int n0 = ((int)blockIdx.x * HALF_WARPS + (int)threadIdx.x / FV_LANES) * COLUMNS;
    int m0 = (int)blockIdx.y * ROWS;
    const float *xs[ROWS];
    size_t ws[COLUMNS];
    float acc[ROWS][COLUMNS] = {};
    for (int m = 0; m < ROWS; m++)
        xs[m] = static_cast<const float *>(x.data) + (size_t)min(m0 + m, M - 1) * (size_t)x.ld;
    for (int n = 0; n < COLUMNS; n++) ws[n] = (size_t)min(n0 + n, N - 1) * (size_t)p.w.ld;
    for (int k = lane; k < K; k += FV_LANES) {
        float xk[ROWS], wk[COLUMNS];
        for (int m = 0; m < ROWS; m++) xk[m] = xs[m][k];
        for (int n = 0; n < COLUMNS; n++) wk[n] = widened(p.w.data, p.w.dtype, ws[n] + (size_t)k);
        for (int m = 0; m < ROWS; m++)
            for (int n = 0; n < COLUMNS; n++) acc[m][n] = fmaf(xk[m], wk[n], acc[m][n]);
    }
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < COLUMNS; n++) {
            float sum = fv_lanes_tree(acc[m][n]);
            if (lane != 0 || m0 + m >= M || n0 + n >= N) continue;
            float *y = static_cast<float *>(p.y.data) + (size_t)(m0 + m) * (size_t)p.y.ld + n0 + n;
            if (p.bias.data) sum += widened(p.bias.data, p.bias.dtype, (size_t)(n0 + n));
            *y = p.accumulate ? sum + *y : sum;
        }
}

static void exact(fv_cuda *c, const fv_tensor *x, const fv_linear_part *p) {
    unsigned columns = fv_cuda_blocks(p->w.rows, HALF_WARPS * COLUMNS);
    if (x->rows == 1)
        FV_LAUNCH(exact_kernel<1>, dim3(columns), dim3(BLOCK), 0, c->stream, *x, *p);
    else
        FV_LAUNCH(exact_kernel<4>, dim3(columns, fv_cuda_blocks(x->rows, 4)), dim3(BLOCK), 0,
                  c->stream, *x, *p);
}

/* ---- cuBLAS ---------------------------------------------------------------------------- */

static __global__ void round_kernel(fv_tensor x, fv_dtype dtype, uint16_t *y) {
    const float largest = 65504.0f; /* of f16 */
    int64_t n = (int64_t)x.rows * x.cols;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK) {
        float f = static_cast<const float *>(x.data)[i / x.cols * x.ld + i % x.cols];
        if (dtype == FV_F16) f = f > largest ? largest : f < -largest ? -largest : f;
        y[i] = dtype == FV_BF16 ? bf16_of_f32(f) : f16_of_f32(f);
    }
}

static __global__ void bias_kernel(fv_tensor y, fv_tensor bias) {
    int64_t n = (int64_t)y.rows * y.cols;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK)
        static_cast<float *>(y.data)[i / y.cols * y.ld + i % y.cols] +=
            widened(bias.data, bias.dtype, (size_t)(i % y.cols));
}

static dim3 grid_of(int64_t n) {
    unsigned blocks = fv_cuda_blocks(n, BLOCK);
    return dim3(blocks < 4096 ? blocks : 4096);
}

/* Rounds x to the weights' type, into scratch memory; does nothing for F32. */
static fv_status rounded(fv_cuda *c, const fv_tensor *x, fv_dtype dtype, fv_tensor *out) {
    *out = *x;
    if (dtype == FV_F32) return FV_OK;
    int64_t n = (int64_t)x->rows * x->cols;
    void *to;
    FV_TRY(fv_cuda_scratch(c, (size_t)n * sizeof(uint16_t), &to));
    FV_LAUNCH(round_kernel, grid_of(n), dim3(BLOCK), 0, c->stream, *x, dtype,
              static_cast<uint16_t *>(to));
    *out = fv_tensor_of(to, dtype, x->rows, x->cols);
    return FV_OK;
}

static fv_status fast(fv_cuda *c, const fv_linear_args *a) {
    fv_tensor x = {};
    for (int i = 0; i < a->n_part; i++) {
        const fv_linear_part *p = &a->part[i];
        if (p->w.rows == 0) continue;
        if (!x.data || x.dtype != p->w.dtype) FV_TRY(rounded(c, &a->x, p->w.dtype, &x));
        FV_TRY(fv_cuda_issue_gemm(c, &x, &p->w, &p->y, p->accumulate ? 1.0f : 0.0f));
        if (p->bias.data)
            FV_LAUNCH(bias_kernel, grid_of((int64_t)p->y.rows * p->y.cols), dim3(BLOCK), 0,
                      c->stream, p->y, p->bias);
    }
    return FV_OK;
}

extern "C" fv_status fv_cuda_linear(fv_backend *be, const fv_linear_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    if (a->x.dtype != FV_F32)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the CUDA backend needs activations in f32: linear's x is %s",
                       fv_dtype_name(a->x.dtype));
    assert(a->n_part >= 1 && a->n_part <= FV_LINEAR_MAX_PARTS);
    for (int i = 0; i < a->n_part; i++)
        assert(a->part[i].w.cols == a->x.cols && a->part[i].w.ld == a->x.cols &&
               a->part[i].y.dtype == FV_F32 && a->part[i].y.rows == a->x.rows &&
               a->part[i].y.cols == a->part[i].w.rows);
    if (a->x.rows == 0) return FV_OK;
    if (c->blas && a->x.cols > 0)
        FV_TRY(fast(c, a));
    else
        for (int i = 0; i < a->n_part; i++)
            if (a->part[i].w.rows) exact(c, &a->x, &a->part[i]);
    return fv_cuda_launched("linear");
}
