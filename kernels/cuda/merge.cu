/* Parts of one attention put together, and what follows from their scores: as kernels/ops.h
 * does it, bit for bit. */
#include "kernels/cuda/gpu.h"

#include <assert.h>

enum { THREADS = 128 };

/* o, lse: the first part, and where the whole goes. */
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
    __syncthreads(); /* all have read lse */
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

struct importance_call {
    const float *score, *lse;
    float *importance;
    int32_t n, n_head, n_rows, score_ld, ldl;
    const float *keep; /* changes from row to row of a turn */
};

/* A thread per row of the block. */
static __global__ void __launch_bounds__(THREADS) importance(importance_call a) {
    int32_t j = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    if (j >= a.n) return;
    float sum = 0.0f;
    for (int32_t h = 0; h < a.n_head; h++)
        for (int32_t i = 0; i < a.n_rows; i++) {
            float lse = a.lse[(int64_t)i * a.ldl + h];
            if (lse == -INFINITY) continue; /* nothing was seen, so nothing is paid */
            sum += exp_f32(a.score[((int64_t)h * a.n_rows + i) * a.score_ld + j] - lse);
        }
    float mean = sum / ((float)a.n_head * (float)a.n_rows);
    float keep = *a.keep, old = keep == 0.0f ? 0.0f : a.importance[j];
    a.importance[j] = fmaf(keep, old, (1.0f - keep) * mean);
}

fv_status fv_cuda_importance(fv_backend *be, const fv_importance_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    assert(a->lse.rows == a->n_rows && a->lse.cols == a->n_head && a->n_rows > 0);
    assert(a->score_ld >= a->importance.cols);
    if (a->importance.cols == 0) return FV_OK;
    void *keep;
    FV_TRY(fv_cuda_stage_copy(c, &a->keep, sizeof a->keep, &keep));
    importance_call call = {};
    call.score = a->score;
    call.lse = static_cast<const float *>(a->lse.data);
    call.importance = static_cast<float *>(a->importance.data);
    call.n = a->importance.cols;
    call.n_head = a->n_head;
    call.n_rows = a->n_rows;
    call.score_ld = a->score_ld;
    call.ldl = a->lse.ld;
    call.keep = static_cast<const float *>(keep);
    FV_LAUNCH(importance, fv_cuda_blocks(call.n, THREADS), THREADS, 0, c->stream, call);
    return fv_cuda_launched("importance");
}
