#ifndef FOVEA_KERNELS_CPU_PATH_H
#define FOVEA_KERNELS_CPU_PATH_H

/* The CPU backend's operations for one instruction set, without matrix products of weights (gemm.h).
 *
 * There are three tables with the same bits: "plain" is the specification (plain/<operation>.c), "avx2" and "avx512" are
 * fast (lanes/<operation>.h). A function computes the items [begin, end) of an operation on the calling thread and
 * touches nothing else, so backend.c may spread them over threads as it likes. Arguments have been checked. */
#include <stdint.h>

#include "kernels/ops.h"

/* How an operation is cut into independent items. */
typedef struct fv_cpu_plan {
    int64_t n_item, grain; /* grain: items that one thread takes at a time */
    size_t scratch_bytes;  /* per thread */
    size_t shared_bytes;   /* of packed x, for fv_gemm_x.plan */
} fv_cpu_plan;

typedef struct fv_isa_choice fv_isa_choice; /* isa.h */

/* Arguments of attention and what belongs to it. */
typedef struct fv_cpu_attention {
    const void *a;            /* the fv_..._args of the operation */
    fv_compute compute;       /* of products */
    const fv_isa_choice *isa; /* what they may use */
} fv_cpu_attention;

/* `args` is the fv_..._args of the operation, or what ops.def says. */
typedef fv_cpu_plan fv_cpu_plan_fn(const void *args);
typedef void fv_cpu_items(const void *args, void *scratch, int64_t begin, int64_t end);

typedef struct fv_cpu_path {
#define FV_CPU_OP(op)                                                                              \
    fv_cpu_plan_fn *op##_plan;                                                                     \
    fv_cpu_items *op;
#define FV_CPU_ROW_OP(op) fv_cpu_items *op;
#include "kernels/cpu/ops.def"
} fv_cpu_path;

static inline float *row_f32(const fv_tensor *t, int64_t row) {
    return (float *)t->data + row * t->ld;
}

static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
