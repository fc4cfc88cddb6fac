#ifndef FOVEA_KERNELS_CPU_LANES_INDEX_SELECT_H
#define FOVEA_KERNELS_CPU_LANES_INDEX_SELECT_H

/* y[i] = table[ids[i]]; compilers vectorize the widening. */
#include "common/convert.h"
#include "kernels/cpu/path.h"

static void index_select(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_index_select_args *a = args;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        fv_tensor row = fv_tensor_rows(a->table, a->ids[r], 1);
        widen_row(row.data, row.dtype, (size_t)row.cols, row_f32(&a->y, r));
    }
}

#endif
