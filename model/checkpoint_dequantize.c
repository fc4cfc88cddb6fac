/* Makes numbers of the weights that a checkpoint's files have in integers, a tensor at a time on each thread. */
#include <stdatomic.h>

#include "common/log.h"
#include "model/checkpoint_internal.h"
#include "model/dequantize.h"

typedef struct job {
    fv_tensor *from, *to; /* [n] */
    int32_t n;
    atomic_int done;
    fv_checkpoint_progress *progress;
    void *user;
} job;

static void dequantize_one(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    job *j = arg;
    (void)be;
    fv_dequantize(&j->from[i], j->to[i].dtype, j->to[i].data);
    int done = atomic_fetch_add(&j->done, 1) + 1;
    if (slot == 0 && j->progress) j->progress(j->user, done, j->n); /* slot 0: the caller */
}

/* Allocates the numbers of u's weight, which its place in the network gets. */
static fv_status add(fv_checkpoint *ck, job *j, fv_used_tensor *u) {
    const fv_dtype type = ck->text.embed.dtype;
    const size_t n = (size_t)u->view.rows * (size_t)u->view.cols;
    fv_tensor to = fv_tensor_of(NULL, type, u->view.rows, u->view.cols);
    FV_TRY(fv_arena_array(&ck->arena, n, fv_dtype_bytes(type), &to.data));
    ck->bytes += n * fv_dtype_bytes(type) - fv_checkpoint_tensor_bytes(u);
    j->from[j->n] = u->view;
    j->to[j->n++] = u->view = to;
    *fv_checkpoint_slot(ck, u->expected) = to;
    return FV_OK;
}

fv_status fv_checkpoint_dequantize(fv_checkpoint *ck, fv_backend *be,
                                   fv_checkpoint_progress *progress, void *user) {
    job j = {.progress = progress, .user = user};
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used, j.from));
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used, j.to));
    for (int32_t i = 0; i < ck->n_used; i++)
        if (ck->used[i].view.quant) FV_TRY(add(ck, &j, &ck->used[i]));
    if (j.n == 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s holds no quantized weights: leave out --weights dequantized", ck->dir);
    FV_TRY(fv_backend_each(be, j.n, dequantize_one, &j));
    FV_LOG(INFO, MODEL, "event=dequantized weights=%d dtype=%s bytes=%zu", j.n,
           fv_dtype_name(ck->text.embed.dtype), ck->bytes);
    return fv_checkpoint_split_fused(ck);
}
