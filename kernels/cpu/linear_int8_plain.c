/* y = x w^T + bias (+ y) with weights in int8: rows of x are quantized, then an item is one output
 * column. */
#include "kernels/cpu/plain.h"

/* Bytes of a row of x in shared memory: the scale, then the integers as f32. */
static size_t row_bytes(const fv_linear_args *a) { return sizeof(float) * (1 + (size_t)a->x.cols); }

fv_cpu_plan fv_plain_pack_int8_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    return (fv_cpu_plan){
        .n_item = a->x.rows, .grain = 1, .shared_bytes = (size_t)a->x.rows * row_bytes(a)};
}

void fv_plain_pack_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
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

fv_cpu_plan fv_plain_linear_int8_plan(const void *args) {
    return fv_plain_linear_plan(((const fv_cpu_packed_linear *)args)->a);
}

static void column(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n) {
    size_t K = (size_t)b->a->x.cols;
    const int8_t *w = (const int8_t *)p->w.data + (size_t)n * K;
    const float *scale = p->w.quant->scale;
    for (int64_t m = 0; m < b->a->x.rows; m++) {
        const float *x = (const float *)b->x + (size_t)m * (1 + K);
        float *y = row_f32(&p->y, m) + n;
        int32_t sum = 0;
        for (size_t k = 0; k < K; k++) sum += (int32_t)x[1 + k] * w[k];
        float out = (float)sum * x[0] * scale[n];
        if (p->bias.data) out += widened(p->bias.data, p->bias.dtype, (size_t)n);
        if (p->accumulate) out += *y;
        *y = out;
    }
}

void fv_plain_linear_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    (void)scratch;
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t N = b->a->part[p].w.rows;
        for (int64_t n = begin < 0 ? 0 : begin; n < end && n < N; n++) column(b, &b->a->part[p], n);
        begin -= N;
        end -= N;
    }
}
