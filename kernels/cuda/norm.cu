/* LayerNorm and RMSNorm: a block of threads computes one row. */
#include <assert.h>

#include "kernels/cuda/elements.cuh"

enum { MOST_HELD = 32 << 10 }; /* bytes of a row in shared memory */

/* Sum of x, or with `squares` of (x - mean)^2, over a row, by each half of the first warp: the CPU's order
 * has 16 lanes, so only 16 threads can add. The whole block has loaded the row to shared memory, so these
 * need not wait for memory. */
static __device__ float row_sum(const float *x, int n, float mean, bool squares) {
    int lane = (int)threadIdx.x % FV_LANES;
    float acc = 0.0f;
#pragma unroll 8
    for (int k = lane; k < n; k += FV_LANES) {
        float d = squares ? x[k] - mean : x[k];
        acc = squares ? fmaf(d, d, acc) : acc + d;
    }
    return fv_lanes_tree(acc);
}

/* held: the row fits shared memory. */
static __global__ void norm_kernel(fv_norm_args a, int held) {
    FV_SHARED(float, row);
    __shared__ float of_row[2]; /* mean, scale */
    int n = a.x.cols;
    const float *x = f32_at(a.x, blockIdx.x, 0);
    float *y = f32_at(a.y, blockIdx.x, 0);
    if (held) {
        for (int k = (int)threadIdx.x; k < n; k += BLOCK) row[k] = x[k];
        __syncthreads();
        x = row;
    }
    if (threadIdx.x < FV_WARP) {
        float mean = 0.0f;
        if (!a.rms) mean = __shfl_sync(FV_ALL_LANES, row_sum(x, n, 0.0f, false), 0) / (float)n;
        float squares = row_sum(x, n, mean, true);
        if (threadIdx.x == 0) {
            of_row[0] = mean;
            of_row[1] = sqrtf(squares / (float)n + a.eps);
        }
    }
    __syncthreads(); /* y may be x: all of the row has been read */
    for (int k = (int)threadIdx.x; k < n; k += BLOCK) {
        float t = (x[k] - of_row[0]) / of_row[1] * widened(a.w.data, a.w.dtype, (size_t)k);
        if (a.b.data) t += widened(a.b.data, a.b.dtype, (size_t)k);
        y[k] = t;
    }
}

extern "C" fv_status fv_cuda_norm(fv_backend *be, const fv_norm_args *a) {
    FV_TRY(need_f32(&a->x, "norm's x"));
    FV_TRY(need_f32(&a->y, "norm's y"));
    assert(a->x.rows == a->y.rows && a->x.cols == a->y.cols && a->w.data);
    if (a->x.rows == 0 || a->x.cols == 0) return FV_OK;
    size_t bytes = (size_t)a->x.cols * sizeof(float);
    bool held = bytes <= MOST_HELD;
    FV_LAUNCH(norm_kernel, dim3((unsigned)a->x.rows), dim3(BLOCK), held ? bytes : 0,
              fv_cuda_of(be)->stream, *a, held);
    return fv_cuda_launched("norm");
}
