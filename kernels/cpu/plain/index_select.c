/* y[i] = table[ids[i]], element by element. */
#include "kernels/cpu/plain/plain.h"

void fv_plain_index_select(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_index_select_args *a = args;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        size_t from = (size_t)a->ids[r] * (size_t)a->table.ld;
        for (int32_t k = 0; k < a->y.cols; k++)
            row_f32(&a->y, r)[k] = widened(a->table.data, a->table.dtype, from + (size_t)k);
    }
}

fv_status fv_check_index_select(const void *args, fv_cpu_rows *out) {
    const fv_index_select_args *a = args;
    FV_TRY(need_f32(&a->y, "index_select's y"));
    assert(a->table.cols == a->y.cols);
    *out = (fv_cpu_rows){a->y.rows, a->y.cols};
    return FV_OK;
}
