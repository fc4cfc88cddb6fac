/* Computes the closed form of ablation.h, in double: which side of a threshold a row is on must not depend
 * on the order of sums. For the thread that owns the store. */
#include "prefill-worker/prefill/ablation.h"

#include <assert.h>
#include <math.h>

#include "prefill-worker/select/store_rows.h"

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
static void add_head(const fv_ablation_args *x, int32_t head, const float *v, int32_t n, double *cc,
                     double *oc) {
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

fv_status fv_ablation(const fv_ablation_args *x, fv_arena *arena, float *l2, float *cos) {
    const fv_kv_shape *s = fv_kv_get_shape(x->kv);
    int32_t n = fv_kv_len(x->kv, x->layer, 0, FV_SEG_VISUAL);
    size_t numbers = (size_t)n * (size_t)s->d_head;
    double *cc, *oc, oo = dot(x->o, x->o, x->n_head * s->d_head);
    float *v;
    if (n == 0) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, n, cc));
    FV_TRY(FV_ARENA_NEW(arena, n, oc));
    FV_TRY(FV_ARENA_NEW(arena, numbers, v));
    for (int32_t g = 0; g < s->n_kv; g++) {
        assert(fv_kv_len(x->kv, x->layer, g, FV_SEG_VISUAL) == n);
        FV_TRY(fv_read_rows(x->be, x->kv, x->layer, g, FV_SEG_VISUAL, true, v));
        add_head(x, g, v, n, cc, oc);
    }
    for (int32_t j = 0; j < n; j++) {
        l2[j] = (float)sqrt(cc[j]);
        cos[j] = (float)cosine(oo, oc[j], cc[j]);
    }
    return FV_OK;
}
