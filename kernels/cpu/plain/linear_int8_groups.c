/* y = x w^T + bias (+ y) with weights in groups of integers: groups of 32 columns of x are quantized, then an
 * item is one output column. */
#include "kernels/cpu/plain/gemm.h"
#include "kernels/cpu/plain/plain.h"

enum { GROUP = 32 };

static size_t groups_of(const fv_linear_args *a) { return ((size_t)a->x.cols + GROUP - 1) / GROUP; }

/* A group of x in shared memory; integers after the last column are zeros. */
typedef struct group {
    float scale, code[GROUP];
} group;

static size_t row_bytes(const fv_linear_args *a) { return groups_of(a) * sizeof(group); }

static fv_cpu_plan pack_x_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    return (fv_cpu_plan){
        .n_item = a->x.rows, .grain = 1, .shared_bytes = (size_t)a->x.rows * row_bytes(a)};
}

static group quantized(const float *x, size_t n) {
    group to = {0};
    float most = 0.0f;
    bool finite = true;
    for (size_t k = 0; k < n; k++) {
        finite = finite && isfinite(x[k]);
        most = fmaxf(most, fabsf(x[k]));
    }
    bool zero = !finite || most < 0x1p-100f;
    to.scale = !finite ? NAN : zero ? 0.0f : most / 127.0f;
    for (size_t k = 0; k < n; k++) to.code[k] = zero ? 0.0f : rintf(x[k] * (127.0f / most));
    return to;
}

static void pack_x(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    size_t K = (size_t)b->a->x.cols, n = groups_of(b->a);
    (void)scratch;
    for (int64_t m = begin; m < end; m++)
        for (size_t g = 0; g < n; g++)
            ((group *)b->x)[(size_t)m * n + g] = quantized(
                row_f32(&b->a->x, m) + g * GROUP, K - g * GROUP < GROUP ? K - g * GROUP : GROUP);
}

/* Integer k of a row of w. */
static int integer(const fv_tensor *w, const int8_t *row, size_t k) {
    if (w->dtype == FV_INT8) return row[k];
    return (((const uint8_t *)row)[k / 2] >> k % 2 * 4 & 15) - 8;
}

static void column(fv_gemm_item *t) {
    const fv_gemm_call *c = t->call;
    const fv_quant *q = t->p->w.quant;
    const size_t K = (size_t)c->a->x.cols, N = groups_of(c->a), n = (size_t)t->n0;
    const size_t W = q->group < GROUP ? (size_t)q->group : GROUP; /* columns of an integer sum */
    const int8_t *w = (const int8_t *)t->p->w.data + n * q->row_bytes;
    for (int64_t m = 0; m < c->a->x.rows; m++) {
        const group *x = (const group *)c->x + (size_t)m * N;
        float out = 0.0f;
        for (size_t g = 0; g * W < K; g++) {
            size_t at = n * (size_t)q->groups + g * W / (size_t)q->group;
            float scale = widened(q->scale, q->scale_type, at);
            const group *of = x + g * W / GROUP;
            int32_t sum = 0;
            for (size_t k = g * W; k < K && k < (g + 1) * W; k++)
                sum += (int32_t)of->code[k % GROUP] * integer(&t->p->w, w, k);
            out = fmaf(scale * of->scale, (float)sum, out);
        }
        plain_store(t, m, out);
    }
}

static const fv_gemm_x x_groups = {1 << FV_PRODUCT_INT8_GROUPS | 1 << FV_PRODUCT_INT4_GROUPS,
                                   pack_x_plan, pack_x};

const fv_gemm_impl fv_plain_gemm_groups = {
    .name = "column", .x = &x_groups, .columns = 1, .item = column};
