/* y = x w^T + bias (+ y) in bf16: an item is one output column. x is read in place. */
#include "kernels/cpu/plain/bf16.h"
#include "kernels/cpu/plain/gemm.h"

/* Element k of row n of a weight in groups of integers (kernels/tensor.h). */
static float decoded(const fv_tensor *w, size_t n, size_t k) {
    const fv_quant *q = w->quant;
    size_t g = n * (size_t)q->groups + k / (size_t)q->group;
    const uint8_t *row = (const uint8_t *)w->data + n * q->row_bytes;
    int code = w->dtype == FV_INT8 ? row[k] : k % 2 ? row[k / 2] / 16 : row[k / 2] % 16;
    float scale = widened(q->scale, q->scale_type, g), min = q->min ? q->min[g] : 0.0f, number;
    if (q->table)
        number = q->table[code];
    else if (w->dtype == FV_INT8)
        number = (float)(int8_t)code;
    else
        number = (float)(code - (q->zero ? q->zero[g] : q->min ? 0 : 8));
    return f32_of_bf16(bf16_of_f32(fmaf(scale, number, -min)));
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

static void column(fv_gemm_item *t) {
    const fv_tensor *x = &t->call->a->x;
    for (int64_t m = 0; m < x->rows; m++)
        plain_store(t, m, dot(row_f32(x, m), &t->p->w, (size_t)t->n0));
}

static const fv_gemm_x x_bf16 = {.products = 1 << FV_PRODUCT_BF16};

const fv_gemm_impl fv_plain_gemm_bf16 = {
    .name = "column", .x = &x_bf16, .columns = 1, .item = column};
