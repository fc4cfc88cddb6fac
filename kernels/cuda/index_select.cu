/* y[i] = table[ids[i]]: a block of threads copies one row. */
#include <assert.h>

#include "kernels/cuda/elements.cuh"

static __global__ void index_select_kernel(fv_tensor table, fv_tensor y, const int32_t *ids) {
    size_t from = (size_t)ids[blockIdx.x] * (size_t)table.ld;
    for (int k = (int)threadIdx.x; k < y.cols; k += BLOCK)
        *f32_at(y, blockIdx.x, k) = widened(table.data, table.dtype, from + (size_t)k);
}

extern "C" fv_status fv_cuda_index_select(fv_backend *be, const fv_index_select_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    void *ids;
    FV_TRY(need_f32(&a->y, "index_select's y"));
    assert(a->table.cols == a->y.cols);
    if (a->y.rows == 0 || a->y.cols == 0) return FV_OK;
    FV_TRY(fv_cuda_stage_copy(c, a->ids, (size_t)a->y.rows * sizeof *a->ids, &ids));
    FV_LAUNCH(index_select_kernel, dim3((unsigned)a->y.rows), dim3(BLOCK), 0, c->stream, a->table,
              a->y, static_cast<const int32_t *>(ids));
    return fv_cuda_launched("index_select");
}
