/* Updates the importance of packed rows, in the CPU's order. */
#include <assert.h>

#include "kernels/cuda/gpu.h"

enum { THREADS = 128 };

struct importance_call {
    const float *score, *lse;
    float *importance;
    int32_t n, n_head, n_rows, score_ld, ldl;
    const float *keep; /* on the device: a graph's arguments must not change */
};

/* A thread per row of the block. */
static __global__ void __launch_bounds__(THREADS) importance(importance_call a) {
    int32_t j = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    if (j >= a.n) return;
    float sum = 0.0f;
    for (int32_t h = 0; h < a.n_head; h++)
        for (int32_t i = 0; i < a.n_rows; i++) {
            float lse = a.lse[(int64_t)i * a.ldl + h];
            if (lse == -INFINITY) continue; /* the query row sees nothing */
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
