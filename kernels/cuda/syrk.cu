/* g = x x^T in double, in the CPU's order. */
#include <stdlib.h>

#include "kernels/cuda/gpu.h"

enum { BLOCK = 128, SYRK_LANES = 8 };

/* Eight threads compute one element on or below the diagonal, g[m, n]; a thread block works on one row m. */
static __global__ void syrk_kernel(fv_tensor x, double *g) {
    int lane = (int)threadIdx.x % SYRK_LANES, m = (int)blockIdx.y;
    int n = (int)(blockIdx.x * BLOCK + threadIdx.x) / SYRK_LANES;
    const float *a = static_cast<const float *>(x.data) + (size_t)m * (size_t)x.ld;
    const float *b = static_cast<const float *>(x.data) + (size_t)min(n, m) * (size_t)x.ld;
    double acc = 0;
    for (int k = lane; k < x.cols; k += SYRK_LANES) acc += (double)a[k] * (double)b[k];
    for (int s = SYRK_LANES / 2; s > 0; s /= 2)
        acc += __shfl_down_sync(FV_ALL_LANES, acc, (unsigned)s, SYRK_LANES);
    if (lane == 0 && n <= m) g[(size_t)m * (size_t)x.rows + (size_t)n] = acc;
}

/* Copies the part on and below the diagonal to the host. */
static fv_status fetch(fv_cuda *c, const double *from, size_t M, double *g) {
    double *all = static_cast<double *>(malloc(M * M * sizeof *all));
    if (!all) return FV_FAIL(FV_ENOMEM, "out of memory for %zu x %zu sums", M, M);
    fv_status st = c->device.ops->copy_async(&c->device, all, from, M * M * sizeof *all);
    if (st == FV_OK) st = fv_cuda_check(cudaStreamSynchronize(c->stream), "syrk");
    for (size_t m = 0; m < M && st == FV_OK; m++)
        memcpy(g + m * M, all + m * M, (m + 1) * sizeof *g);
    free(all);
    return st;
}

extern "C" fv_status fv_cuda_syrk_there(fv_cuda *c, const fv_tensor *x, double *g) {
    size_t M = (size_t)x->rows;
    if (M > 65535) return FV_FAIL(FV_EUNSUPPORTED, "syrk of %zu rows: at most 65535", M);
    dim3 grid(fv_cuda_blocks((int64_t)M * SYRK_LANES, BLOCK), (unsigned)M);
    FV_LAUNCH(syrk_kernel, grid, dim3(BLOCK), 0, c->stream, *x, g);
    return fv_cuda_launched("syrk");
}

extern "C" fv_status fv_cuda_syrk(fv_backend *be, const fv_syrk_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    size_t M = (size_t)a->x.rows;
    void *g;
    if (a->x.dtype != FV_F32)
        return FV_FAIL(FV_EUNSUPPORTED, "the CUDA backend needs activations in f32");
    if (M == 0) return FV_OK;
    FV_TRY(fv_cuda_scratch(c, M * M * sizeof(double), &g));
    FV_TRY(fv_cuda_syrk_there(c, &a->x, static_cast<double *>(g)));
    return fetch(c, static_cast<double *>(g), M, a->g);
}
