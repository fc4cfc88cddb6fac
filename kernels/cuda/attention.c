/* Attention: checks a call, and chooses its kernels. */
#include "kernels/cuda/attention.h"

#include <assert.h>

fv_status fv_cuda_attention(fv_backend *be, const fv_attn_args *a) {
    assert(a->n_kv > 0 && a->n_head % a->n_kv == 0 && a->d_head > 0);
    assert(a->q.rows == a->o.rows && a->q.cols == a->n_head * a->d_head);
    assert(!a->lse.data || (a->lse.rows == a->q.rows && a->lse.cols == a->n_head));
    for (int i = 0; i < a->n_seq; i++) {
        assert(a->seqs[i].n_seg >= 1 && a->seqs[i].n_seg <= FV_ATTN_MAX_SEG);
        assert(a->slides || !a->seqs[i].window_from);
        assert(a->seqs[i].n >= 0.0f && (a->seqs[i].n == 0.0f || !a->seqs[i].share));
    }
    fv_cuda *c = fv_cuda_of(be);
    return fv_cuda_attn_is_tiled(c, a) ? fv_cuda_attention_tiled(c, a)
                                       : fv_cuda_attention_exact(c, a);
}
