/* y = x w^T + bias (+ y) in bf16: an item is one output column. x is read in place. */
#include "kernels/cpu/plain_bf16.h"

fv_cpu_plan fv_plain_pack_bf16_plan(const void *args) {
    (void)args;
    return (fv_cpu_plan){.grain = 1};
}

void fv_plain_pack_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    (void)args, (void)scratch, (void)begin, (void)end;
}

fv_cpu_plan fv_plain_linear_bf16_plan(const void *args) {
    const fv_cpu_packed_linear *b = args;
    return fv_plain_linear_plan(b->a);
}

/* Element k of row n of a weight in groups of integers (kernels/tensor.h). */
static float decoded(const fv_tensor *w, size_t n, size_t k) {
    const fv_quant *q = w->quant;
    size_t g = n * (size_t)q->groups + k / (size_t)q->group;
    const uint8_t *row = (const uint8_t *)w->data + n * q->row_bytes;
    int integer, zero = 0;
    if (w->dtype == FV_INT8) {
        integer = ((const int8_t *)row)[k];
    } else {
        integer = k % 2 ? row[k / 2] / 16 : row[k / 2] % 16;
        zero = q->zero ? q->zero[g] : q->min ? 0 : 8;
    }
    float scale = widened(q->scale, q->scale_type, g), min = q->min ? q->min[g] : 0.0f;
    return f32_of_bf16(bf16_of_f32(fmaf(scale, (float)(integer - zero), -min)));
}

static float dot(const float *x, const fv_tensor *w, size_t n) {
    size_t K = (size_t)w->cols;
    float acc = 0.0f;
    if (!w->quant)
        return plain_dot_bf16(x, FV_F32, (const char *)w->data + n * K * fv_dtype_bytes(w->dtype),
                              w->dtype, K);
    for (size_t k = 0; k < K; k += 32) {
        float xs[32] = {0}, ws[32] = {0};
        for (size_t i = 0; i < 32 && k + i < K; i++) {
            xs[i] = plain_operand(x, FV_F32, k + i);
            ws[i] = plain_flushed(decoded(w, n, k + i));
        }
        acc = plain_step_bf16(acc, xs, ws);
    }
    return acc;
}

static void column(const fv_tensor *x, const fv_linear_part *p, int64_t n) {
    for (int64_t m = 0; m < x->rows; m++) {
        float *y = row_f32(&p->y, m) + n;
        float sum = dot(row_f32(x, m), &p->w, (size_t)n);
        if (p->bias.data) sum += widened(p->bias.data, p->bias.dtype, (size_t)n);
        if (p->accumulate) sum += *y;
        *y = sum;
    }
}

void fv_plain_linear_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    (void)scratch;
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t N = b->a->part[p].w.rows;
        for (int64_t n = begin < 0 ? 0 : begin; n < end && n < N; n++)
            column(&b->a->x, &b->a->part[p], n);
        begin -= N;
        end -= N;
    }
}
