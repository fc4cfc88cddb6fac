/* y = x w^T + bias (+ y): an item is one output column. */
#include "kernels/cpu/plain.h"

fv_cpu_plan fv_plain_linear_plan(const void *args) {
    const fv_linear_args *a = args;
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += a->part[p].w.rows;
    return plan;
}

static void column(const fv_tensor *x, const fv_linear_part *p, int64_t n) {
    fv_tensor w = fv_tensor_rows(p->w, (int32_t)n, 1);
    for (int64_t m = 0; m < x->rows; m++) {
        float *y = row_f32(&p->y, m) + n;
        float sum = plain_dot(row_f32(x, m), w.data, w.dtype, (size_t)w.cols);
        if (p->bias.data) sum += widened(p->bias.data, p->bias.dtype, (size_t)n);
        if (p->accumulate) sum += *y;
        *y = sum;
    }
}

void fv_plain_linear(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_linear_args *a = args;
    (void)scratch;
    for (int p = 0; p < a->n_part; p++) {
        int64_t N = a->part[p].w.rows;
        for (int64_t n = begin < 0 ? 0 : begin; n < end && n < N; n++)
            column(&a->x, &a->part[p], n);
        begin -= N;
        end -= N;
    }
}
