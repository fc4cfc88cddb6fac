/* y = x w^T + bias (+ y) with weights in groups of integers: groups of 32 columns of x are quantized, then an
 * item is one output column. */
#include "kernels/cpu/plain.h"

enum { GROUP = 32 };

static size_t groups_of(const fv_linear_args *a) { return ((size_t)a->x.cols + GROUP - 1) / GROUP; }

/* A group of x in shared memory; integers after the last column are zeros. */
typedef struct group {
    float scale, code[GROUP];
} group;

static size_t row_bytes(const fv_linear_args *a) { return groups_of(a) * sizeof(group); }

fv_cpu_plan fv_plain_pack_int8_groups_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
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

void fv_plain_pack_int8_groups(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    size_t K = (size_t)b->a->x.cols, n = groups_of(b->a);
    (void)scratch;
    for (int64_t m = begin; m < end; m++)
        for (size_t g = 0; g < n; g++)
            ((group *)b->x)[(size_t)m * n + g] = quantized(
                row_f32(&b->a->x, m) + g * GROUP, K - g * GROUP < GROUP ? K - g * GROUP : GROUP);
}

fv_cpu_plan fv_plain_linear_int8_groups_plan(const void *args) {
    return fv_plain_linear_plan(((const fv_cpu_packed_linear *)args)->a);
}

/* Integer k of a row of w. */
static int integer(const fv_tensor *w, const int8_t *row, size_t k) {
    if (w->dtype == FV_INT8) return row[k];
    return (((const uint8_t *)row)[k / 2] >> k % 2 * 4 & 15) - 8;
}

static void column(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n) {
    const fv_quant *q = p->w.quant;
    size_t K = (size_t)b->a->x.cols, N = groups_of(b->a);
    size_t W = q->group < GROUP ? (size_t)q->group : GROUP; /* columns of an integer sum */
    const int8_t *w = (const int8_t *)p->w.data + (size_t)n * q->row_bytes;
    for (int64_t m = 0; m < b->a->x.rows; m++) {
        const group *x = (const group *)b->x + (size_t)m * N;
        float *y = row_f32(&p->y, m) + n, out = 0.0f;
        for (size_t g = 0; g * W < K; g++) {
            size_t at = (size_t)n * (size_t)q->groups + g * W / (size_t)q->group;
            float scale = widened(q->scale, q->scale_type, at);
            const group *of = x + g * W / GROUP;
            int32_t sum = 0;
            for (size_t k = g * W; k < K && k < (g + 1) * W; k++)
                sum += (int32_t)of->code[k % GROUP] * integer(&p->w, w, k);
            out = fmaf(scale * of->scale, (float)sum, out);
        }
        if (p->bias.data) out += widened(p->bias.data, p->bias.dtype, (size_t)n);
        if (p->accumulate) out += *y;
        *y = out;
    }
}

void fv_plain_linear_int8_groups(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    (void)scratch;
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t N = b->a->part[p].w.rows;
        for (int64_t n = begin < 0 ? 0 : begin; n < end && n < N; n++) column(b, &b->a->part[p], n);
        begin -= N;
        end -= N;
    }
}
