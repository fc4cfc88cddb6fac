/* The closed form of influence.h, in double: a row near a threshold must not depend on the order of
 * sums. The thread that owns the store. */
#include "prefill-worker/influence.h"

#include <assert.h>
#include <math.h>

/* Values of a head's n visual rows as F32 on the host. */
static fv_status bring_values(const fv_influence_args *x, int32_t head, int32_t n, fv_arena *arena,
                              fv_buf *room, float *v) {
    const fv_kv_shape *s = fv_kv_get_shape(x->kv);
    fv_device *dev = x->be->device;
    int32_t *ids;
    FV_TRY(FV_ARENA_NEW(arena, n, ids));
    for (int32_t i = 0; i < n; i++) ids[i] = i;
    for (int32_t row = 0, rows; row < n; row += rows) {
        void *at;
        rows = fv_kv_stretch(x->kv, x->layer, head, FV_SEG_VISUAL, true, row, n, &at);
        fv_gather_args gather = {.table = fv_tensor_of(at, s->dtype, rows, s->d_head),
                                 .y = fv_tensor_of(room->data, FV_F32, rows, s->d_head),
                                 .ids = ids};
        size_t numbers = (size_t)rows * (size_t)s->d_head;
        FV_TRY(x->be->ops->gather(x->be, &gather));
        FV_TRY(dev->ops->copy_async(dev, v + (size_t)row * (size_t)s->d_head, room->data,
                                    numbers * sizeof *v));
        FV_TRY(x->be->ops->sync(x->be));
    }
    return FV_OK;
}

static double dot(const float *x, const float *y, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

static double cosine(double oo, double oc, double cc) {
    double rest = oo - 2 * oc + cc; /* |O - c|^2 */
    if (oo <= 0) return 1;
    if (rest <= 1e-14 * oo) return 0;
    return (oo - oc) / (sqrt(oo) * sqrt(rest));
}

/* Adds a KV head's part to cc[j] = |c_j|^2 and oc[j] = O c_j. */
static void add_head(const fv_influence_args *x, int32_t head, const float *v, int32_t n,
                     double *cc, double *oc) {
    const fv_kv_shape *s = fv_kv_get_shape(x->kv);
    int32_t D = s->d_head, group = x->n_head / s->n_kv;
    for (int32_t j = 0; j < n; j++, v += D) {
        double vv = dot(v, v, D);
        for (int32_t h = head * group; h < (head + 1) * group; h++) {
            double a = (double)x->a[(size_t)h * (size_t)x->ld + (size_t)j];
            cc[j] += a * a * vv;
            oc[j] += a * dot(x->o + (size_t)h * (size_t)D, v, D);
        }
    }
}

fv_status fv_influence(const fv_influence_args *x, fv_arena *arena, float *l2, float *cos) {
    const fv_kv_shape *s = fv_kv_get_shape(x->kv);
    int32_t n = fv_kv_len(x->kv, x->layer, 0, FV_SEG_VISUAL);
    size_t numbers = (size_t)n * (size_t)s->d_head;
    double *cc, *oc, oo = dot(x->o, x->o, x->n_head * s->d_head);
    float *v;
    fv_buf room = {0};
    fv_status st = FV_OK;
    if (n == 0) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, n, cc));
    FV_TRY(FV_ARENA_NEW(arena, n, oc));
    FV_TRY(FV_ARENA_NEW(arena, numbers, v));
    FV_TRY(fv_buf_alloc(x->be->device, numbers * sizeof *v, FV_BUF_DEVICE, &room));
    for (int32_t g = 0; g < s->n_kv && st == FV_OK; g++) {
        assert(fv_kv_len(x->kv, x->layer, g, FV_SEG_VISUAL) == n);
        st = bring_values(x, g, n, arena, &room, v);
        if (st == FV_OK) add_head(x, g, v, n, cc, oc);
    }
    for (int32_t j = 0; j < n; j++) {
        l2[j] = (float)sqrt(cc[j]);
        cos[j] = (float)cosine(oo, oc[j], cc[j]);
    }
    fv_buf_free(&room);
    return st;
}
