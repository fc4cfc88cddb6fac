#ifndef FOVEA_KERNELS_CPU_CHECK_H
#define FOVEA_KERNELS_CPU_CHECK_H

/* Checks of an operation's arguments, before any path gets them. A row-wise operation's check is
 * beside its plain version: fv_check_<operation> in plain/<operation>.c. */
#include <assert.h>

#include "kernels/cpu/path.h"

/* Items of a row-wise operation: `rows`, of `cols` elements each. */
typedef struct fv_cpu_rows {
    int64_t rows, cols;
} fv_cpu_rows;

/* `args` is the fv_..._args of the operation. FV_EUNSUPPORTED for a dtype that the CPU does not compute
 * in; shapes that contradict each other are asserted. */
typedef fv_status fv_cpu_check(const void *args, fv_cpu_rows *out);

#define FV_OP(name, args)
#define FV_ROW_OP(name, args) fv_cpu_check fv_check_##name;
#include "kernels/ops.def"

/* Refuses activations that are not F32: they belong to another backend. */
static inline fv_status need_f32(const fv_tensor *t, const char *what) {
    if (!t->data || t->dtype == FV_F32) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "the CPU backend computes in f32: %s is %s", what,
                   fv_dtype_name(t->dtype));
}

static inline bool same_shape(const fv_tensor *a, const fv_tensor *b) {
    return a->rows == b->rows && a->cols == b->cols;
}

static inline bool is_vector_of(const fv_tensor *t, int32_t n) {
    return !t->data || (t->rows == 1 && t->cols == n);
}

#endif
