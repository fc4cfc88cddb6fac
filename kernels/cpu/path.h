#ifndef FOVEA_KERNELS_CPU_PATH_H
#define FOVEA_KERNELS_CPU_PATH_H

/* The CPU backend's operations for one instruction set.
 *
 * There are three tables with the same bits: "plain" is the specification (<operation>_plain.c),
 * "avx2" and "avx512" are fast (<operation>_lanes.h). A function does the items [begin, end) of an
 * operation on the calling thread and touches nothing else, so backend.c may spread them over
 * threads as it likes. Arguments have been checked. */
#include <stdint.h>

#include "kernels/ops.h"

/* How an operation falls into independent items. */
typedef struct fv_cpu_plan {
    int64_t n_item, grain; /* grain: items that one thread takes at a time */
    size_t scratch_bytes;  /* per thread */
} fv_cpu_plan;

/* `args` is the fv_..._args of the operation. */
typedef fv_cpu_plan fv_cpu_plan_fn(const void *args);
typedef void fv_cpu_items(const void *args, void *scratch, int64_t begin, int64_t end);

typedef struct fv_cpu_path {
    const char *isa;
#define FV_CPU_OP(op)                                                                              \
    fv_cpu_plan_fn *op##_plan;                                                                     \
    fv_cpu_items *op;
#define FV_CPU_ROW_OP(op) fv_cpu_items *op;
#include "kernels/cpu/ops.def"
} fv_cpu_path;

extern const fv_cpu_path fv_cpu_path_plain, fv_cpu_path_avx2, fv_cpu_path_avx512;

/* The best path of this machine, or the one called `isa`. FV_EINVAL for an unknown name,
 * FV_EUNSUPPORTED for one that this machine cannot run. */
fv_status fv_cpu_path_find(const char *isa, const fv_cpu_path **out);

static inline float *row_f32(const fv_tensor *t, int64_t row) {
    return (float *)t->data + row * t->ld;
}

static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
