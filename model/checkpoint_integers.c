/* Lets products multiply the integers of weights that files have with zero points or mins, or for activations in 16
 * bits: the offsets that such products add are computed, a weight at a time on each thread. */
#include <math.h>
#include <stdatomic.h>

#include "common/convert.h"
#include "common/log.h"
#include "model/checkpoint_internal.h"

typedef struct job {
    const fv_tensor **w; /* [n] */
    float **offset;      /* [n] */
    atomic_bool *any;    /* [n] whether one of them is not 0 */
} job;

/* Returns whether w is decoded in products now, and has integers. */
static bool is_decoded(const fv_tensor *w) {
    const fv_quant *q = w->quant;
    if (!q || !q->group || q->integers || q->table) return false;
    if (w->dtype == FV_INT4) return true;
    return (q->group == 16 || q->group % 32 == 0) && (q->min || q->group > 32);
}

static size_t offsets_of(const fv_tensor *w) { return (size_t)w->rows * (size_t)w->quant->groups; }

/* Offset i: the part of its weights that scale * integer, or scale * (integer - 8) of 4 bits, lacks. */
static float offset_at(const fv_tensor *w, size_t i) {
    const fv_quant *q = w->quant;
    const float min = q->min ? q->min[i] : 0.0f;
    if (w->dtype == FV_INT8) return -min;
    const int zero = q->zero ? q->zero[i] : q->min ? 0 : 8;
    return fmaf(widened(q->scale, q->scale_type, i), (float)(8 - zero), -min);
}

static void fill_offsets(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    job *j = arg;
    bool any = false;
    (void)be, (void)slot;
    for (size_t at = 0; at < offsets_of(j->w[i]); at++) {
        const float x = offset_at(j->w[i], at);
        any = any || x < 0 || x > 0;
        if (j->offset[i]) j->offset[i][at] = x;
    }
    atomic_store(&j->any[i], any);
}

/* Computes the offsets of weights that have any: most symmetric files have none, and keep no memory for them. */
static fv_status fill_all(fv_checkpoint *ck, fv_backend *be, job *j, int32_t n) {
    FV_TRY(fv_backend_each(be, n, fill_offsets, j));
    for (int32_t i = 0; i < n; i++)
        if (atomic_load(&j->any[i]))
            FV_TRY(FV_ARENA_NEW(&ck->arena, offsets_of(j->w[i]), j->offset[i]));
    return fv_backend_each(be, n, fill_offsets, j);
}

static fv_status list(fv_checkpoint *ck, job *j, int32_t *n) {
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used, j->w));
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used, j->offset));
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used, j->any));
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor *w = &ck->used[i].view;
        if (is_decoded(w)) j->w[(*n)++] = w;
    }
    return FV_OK;
}

fv_status fv_checkpoint_use_integers(fv_checkpoint *ck, fv_backend *be, bool *changed) {
    job j;
    int32_t n = 0;
    size_t bytes = 0;
    FV_TRY(list(ck, &j, &n));
    FV_TRY(fill_all(ck, be, &j, n));
    for (int32_t i = 0; i < n; i++) {
        fv_quant *q = (fv_quant *)(uintptr_t)j.w[i]
                          ->quant; /* in the arena, and shared with the network's view */
        q->integers = true;
        if (!atomic_load(&j.any[i])) continue;
        q->offset = j.offset[i];
        bytes += offsets_of(j.w[i]) * sizeof(float);
    }
    ck->bytes += bytes;
    *changed = n > 0;
    if (n) FV_LOG(INFO, MODEL, "event=integers weights=%d bytes=%zu", n, bytes);
    return n ? fv_checkpoint_split_fused(ck) : FV_OK;
}
