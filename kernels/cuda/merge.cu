/* Merges two attentions over disjoint keys, with the CPU's bits. */
#include "kernels/cuda/gpu.h"

#include <assert.h>

enum { THREADS = 128 };

/* o, lse: the first part, and the result. */
struct merge_call {
    float *o, *lse;
    const float *o2, *lse2;
    int32_t ldo, ldo2, ldl, ldl2, D;
};

/* Grid: (rows, query heads). */
static __global__ void __launch_bounds__(THREADS) merge(merge_call a) {
    int64_t row = blockIdx.x;
    int32_t h = (int32_t)blockIdx.y;
    float *o = a.o + row * a.ldo + h * a.D, *lse = a.lse + row * a.ldl + h;
    const float *o2 = a.o2 + row * a.ldo2 + h * a.D;
    float lse1 = *lse, lse2 = a.lse2[row * a.ldl2 + h];
    float m = lse1 > lse2 ? lse1 : lse2;
    float w = exp_f32(lse1 - m), w2 = exp_f32(lse2 - m), l = w + w2;
    bool first = lse2 == -INFINITY, second = lse1 == -INFINITY;
    if (first) return;
    for (int32_t d = (int32_t)threadIdx.x; d < a.D; d += THREADS)
        o[d] = second ? o2[d] : fmaf(w2, o2[d], w * o[d]) / l;
    __syncthreads(); /* all threads have read lse */
    if (threadIdx.x == 0) *lse = second ? lse2 : m + log_f32(l);
}

fv_status fv_cuda_merge(fv_backend *be, const fv_merge_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    assert(a->o.rows == a->o2.rows && a->o.cols == a->o2.cols && a->o.cols % a->n_head == 0);
    if (a->o.rows == 0) return FV_OK;
    merge_call call = {};
    call.o = static_cast<float *>(a->o.data);
    call.lse = static_cast<float *>(a->lse.data);
    call.o2 = static_cast<const float *>(a->o2.data);
    call.lse2 = static_cast<const float *>(a->lse2.data);
    call.ldo = a->o.ld;
    call.ldo2 = a->o2.ld;
    call.ldl = a->lse.ld;
    call.ldl2 = a->lse2.ld;
    call.D = a->o.cols / a->n_head;
    FV_LAUNCH(merge, dim3((unsigned)a->o.rows, (unsigned)a->n_head), THREADS, 0, c->stream, call);
    return fv_cuda_launched("merge");
}
