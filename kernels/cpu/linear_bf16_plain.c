/* y = x w^T + bias (+ y) in bf16: an item is one output column. x is read where it lies. */
#include "kernels/cpu/plain_bf16.h"

fv_cpu_plan fv_plain_pack_bf16_plan(const void *args) {
    (void)args;
    return (fv_cpu_plan){.grain = 1};
}

void fv_plain_pack_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    (void)args, (void)scratch, (void)begin, (void)end;
}

fv_cpu_plan fv_plain_linear_bf16_plan(const void *args) {
    const fv_cpu_linear_bf16 *b = args;
    return fv_plain_linear_plan(b->a);
}

static void column(const fv_tensor *x, const fv_linear_part *p, int64_t n) {
    fv_tensor w = fv_tensor_rows(p->w, (int32_t)n, 1);
    for (int64_t m = 0; m < x->rows; m++) {
        float *y = row_f32(&p->y, m) + n;
        float sum = plain_dot_bf16(row_f32(x, m), FV_F32, w.data, w.dtype, (size_t)w.cols);
        if (p->bias.data) sum += widened(p->bias.data, p->bias.dtype, (size_t)n);
        if (p->accumulate) sum += *y;
        *y = sum;
    }
}

void fv_plain_linear_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_linear_bf16 *b = args;
    (void)scratch;
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t N = b->a->part[p].w.rows;
        for (int64_t n = begin < 0 ? 0 : begin; n < end && n < N; n++)
            column(&b->a->x, &b->a->part[p], n);
        begin -= N;
        end -= N;
    }
}
