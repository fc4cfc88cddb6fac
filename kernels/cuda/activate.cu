/* Activations: a thread computes some elements. */
#include <assert.h>

#include "kernels/cuda/elements.cuh"

#include "kernels/activations.h" /* for the GPU, after gpu.h */

static __device__ float activated(fv_activation act, float x) {
    switch (act) {
    case FV_ACT_SILU: return act_silu(x);
    case FV_ACT_GELU: return act_gelu(x);
    case FV_ACT_GELU_TANH: return act_gelu_tanh(x);
    case FV_ACT_QUICK_GELU: return act_quick_gelu(x);
    case FV_ACT_RELU: return act_relu(x);
    case FV_ACT_SIGMOID: return act_sigmoid(x);
    default: return x;
    }
}

static __global__ void activate_kernel(fv_activate_args a) {
    int64_t n = (int64_t)a.x.rows * a.x.cols;
    for (int64_t i = first_element(); i < n; i += element_stride()) {
        int64_t row = i / a.x.cols, col = i % a.x.cols;
        float y = activated(a.act, *f32_at(a.x, row, col));
        if (a.gate.data) y *= *f32_at(a.gate, row, col);
        if (a.accumulate) y = __fadd_rn(y, *f32_at(a.y, row, col));
        *f32_at(a.y, row, col) = y;
    }
}

extern "C" fv_status fv_cuda_activate(fv_backend *be, const fv_activate_args *a) {
    FV_TRY(need_f32(&a->x, "activate's x"));
    FV_TRY(need_f32(&a->gate, "activate's gate"));
    FV_TRY(need_f32(&a->y, "activate's y"));
    assert(a->act >= 0 && a->act < FV_N_ACT);
    assert(a->x.rows == a->y.rows && a->x.cols == a->y.cols);
    int64_t n = (int64_t)a->x.rows * a->x.cols;
    if (n == 0) return FV_OK;
    FV_LAUNCH(activate_kernel, grid_of(n), dim3(BLOCK), 0, fv_cuda_of(be)->stream, *a);
    return fv_cuda_launched("activate");
}
