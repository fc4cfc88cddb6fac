#ifndef FOVEA_KERNELS_CUDA_ELEMENTS_CUH
#define FOVEA_KERNELS_CUDA_ELEMENTS_CUH

/* Shared by operations on rows and elements. They give the bits of the CPU in every mode: sums in 16
 * lanes and their tree, the same functions, one rounding per operation. */
#include "kernels/cuda/gpu.h"

enum { BLOCK = 256 };
static const unsigned MAX_GRID = 1 << 20;

static __device__ inline float *f32_at(const fv_tensor &t, int64_t row, int64_t col) {
    return static_cast<float *>(t.data) + row * t.ld + col;
}

/* A grid that covers n elements; kernels loop with its stride. */
static inline dim3 grid_of(int64_t n) {
    unsigned blocks = fv_cuda_blocks(n, BLOCK);
    return dim3(blocks < MAX_GRID ? blocks : MAX_GRID);
}

static __device__ inline int64_t first_element() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ inline int64_t element_stride() { return (int64_t)gridDim.x * blockDim.x; }

static inline fv_status need_f32(const fv_tensor *t, const char *what) {
    if (!t->data || t->dtype == FV_F32) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "the CUDA backend needs activations in f32: %s is %s", what,
                   fv_dtype_name(t->dtype));
}

#endif
