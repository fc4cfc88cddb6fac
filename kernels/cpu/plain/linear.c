/* y = x w^T + bias (+ y): an item is one output column. */
#include "kernels/cpu/plain/gemm.h"
#include "kernels/cpu/plain/plain.h"

static void column(fv_gemm_item *t) {
    const fv_tensor *x = &t->call->a->x, w = fv_tensor_rows(t->p->w, (int32_t)t->n0, 1);
    for (int64_t m = 0; m < x->rows; m++)
        plain_store(t, m, plain_dot(row_f32(x, m), w.data, w.dtype, (size_t)w.cols));
}

static const fv_gemm_x x_f32 = {.products = 1 << FV_PRODUCT_F32};

const fv_gemm_impl fv_plain_gemm_f32 = {
    .name = "column", .x = &x_f32, .columns = 1, .item = column};
