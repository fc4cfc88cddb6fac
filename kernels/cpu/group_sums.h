#ifndef FOVEA_KERNELS_CPU_GROUP_SUMS_H
#define FOVEA_KERNELS_CPU_GROUP_SUMS_H

/* Sums of groups of columns, for the offsets of weights in integers (kernels/ops.h). */
#include "kernels/cpu/path.h"

typedef struct fv_group_sums_args {
    const fv_tensor *x, *sums; /* [M, K], [M, groups] F32 */
    int32_t group;             /* columns of a group; the last may have fewer */
} fv_group_sums_args;

/* Writes rows of sums; an item is a row. */
fv_cpu_items fv_group_sums;

#endif
