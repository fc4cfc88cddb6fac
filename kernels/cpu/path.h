#ifndef FOVEA_KERNELS_CPU_PATH_H
#define FOVEA_KERNELS_CPU_PATH_H

/* The CPU backend's operations for one instruction set.
 *
 * There are four tables with the same bits: "plain" is the specification (<operation>_plain.c),
 * "avx2" and "avx512" are fast (<operation>_lanes.h), and "amx" is avx512 with its own products in
 * bf16 and integers (<operation>_amx.c). A function computes the items [begin, end) of an operation on
 * the calling thread and touches nothing else, so backend.c may spread them over threads as it likes.
 * Arguments have been checked. */
#include <stdint.h>

#include "kernels/ops.h"

/* How an operation is cut into independent items. */
typedef struct fv_cpu_plan {
    int64_t n_item, grain; /* grain: items that one thread takes at a time */
    size_t scratch_bytes;  /* per thread */
    size_t shared_bytes;   /* of packed x, for pack_bf16, pack_int8 and pack_int8_groups */
} fv_cpu_plan;

/* Arguments of linear in bf16 and int8, which is two operations: packing x, rounded or quantized, in the
 * path's layout, then the products. */
typedef struct fv_cpu_packed_linear {
    const fv_linear_args *a;
    void *x; /* packed, aligned to 64 bytes; NULL in calls of a pack plan */
} fv_cpu_packed_linear;

/* `args` is the fv_..._args of the operation. */
typedef fv_cpu_plan fv_cpu_plan_fn(const void *args);
typedef void fv_cpu_items(const void *args, void *scratch, int64_t begin, int64_t end);

typedef struct fv_cpu_path {
    const char *isa;
#define FV_CPU_OP(op)                                                                              \
    fv_cpu_plan_fn *op##_plan;                                                                     \
    fv_cpu_items *op;
#define FV_CPU_AMX_OP FV_CPU_OP
#define FV_CPU_ROW_OP(op) fv_cpu_items *op;
#include "kernels/cpu/ops.def"
} fv_cpu_path;

/* The AMX path's own operations. */
#define FV_CPU_OP(op)
#define FV_CPU_ROW_OP(op)
#define FV_CPU_AMX_OP(op)                                                                          \
    fv_cpu_plan_fn fv_amx_##op##_plan;                                                             \
    fv_cpu_items fv_amx_##op;
#include "kernels/cpu/ops.def"

extern const fv_cpu_path fv_cpu_path_plain, fv_cpu_path_avx2, fv_cpu_path_avx512, fv_cpu_path_amx;

/* Finds the best path of this machine, or the one called `isa`. FV_EINVAL for an unknown name,
 * FV_EUNSUPPORTED for one that this machine cannot run. Requests AMX from the kernel, so call it before
 * starting the threads that use it. */
fv_status fv_cpu_path_find(const char *isa, const fv_cpu_path **out);

static inline float *row_f32(const fv_tensor *t, int64_t row) {
    return (float *)t->data + row * t->ld;
}

static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
