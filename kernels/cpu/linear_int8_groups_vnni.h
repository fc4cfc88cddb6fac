#ifndef FOVEA_KERNELS_CPU_LINEAR_INT8_GROUPS_VNNI_H
#define FOVEA_KERNELS_CPU_LINEAR_INT8_GROUPS_VNNI_H

/* What the AVX-512 path runs of products with weights in groups of integers where fv_vnni_runs_here()
 * (linear_int8.h). */
#include "kernels/cpu/path.h"

fv_cpu_plan_fn fv_vnni_pack_int8_groups_plan, fv_vnni_linear_int8_groups_plan;
fv_cpu_items fv_vnni_pack_int8_groups, fv_vnni_linear_int8_groups;

#endif
