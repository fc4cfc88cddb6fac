/* y = x w^T + bias (+ y) with weights in int8: rows of x are quantized, then an item is one output
 * column. */
#include "kernels/cpu/plain/gemm.h"
#include "kernels/cpu/plain/plain.h"

/* Bytes of a row of x in shared memory: the scale, then the integers as f32. */
static size_t row_bytes(const fv_linear_args *a) { return sizeof(float) * (1 + (size_t)a->x.cols); }

static fv_cpu_plan pack_x_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    return (fv_cpu_plan){
        .n_item = a->x.rows, .grain = 1, .shared_bytes = (size_t)a->x.rows * row_bytes(a)};
}

static void pack_x(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    size_t K = (size_t)b->a->x.cols;
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(&b->a->x, m);
        float *to = (float *)b->x + (size_t)m * (1 + K), most = 0.0f;
        bool finite = true;
        for (size_t k = 0; k < K; k++) {
            finite = finite && isfinite(x[k]);
            most = fmaxf(most, fabsf(x[k]));
        }
        bool zero = !finite || most < 0x1p-100f;
        to[0] = !finite ? NAN : zero ? 0.0f : most / 127.0f;
        for (size_t k = 0; k < K; k++) to[1 + k] = zero ? 0.0f : rintf(x[k] * (127.0f / most));
    }
}

static void column(fv_gemm_item *t) {
    const fv_gemm_call *c = t->call;
    const size_t K = (size_t)c->a->x.cols;
    const int8_t *w = (const int8_t *)t->p->w.data + (size_t)t->n0 * K;
    for (int64_t m = 0; m < c->a->x.rows; m++) {
        const float *x = (const float *)c->x + (size_t)m * (1 + K);
        int32_t sum = 0;
        for (size_t k = 0; k < K; k++) sum += (int32_t)x[1 + k] * w[k];
        plain_store(t, m, (float)sum * x[0] * ((const float *)t->p->w.quant->scale)[t->n0]);
    }
}

static const fv_gemm_x x_int8 = {1 << FV_PRODUCT_INT8, pack_x_plan, pack_x};

const fv_gemm_impl fv_plain_gemm_int8 = {
    .name = "column", .x = &x_int8, .columns = 1, .item = column};
