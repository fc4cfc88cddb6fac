#ifndef FOVEA_KERNELS_CPU_LINEAR_INT8_GROUPS_VNNI_H
#define FOVEA_KERNELS_CPU_LINEAR_INT8_GROUPS_VNNI_H

/* Products with weights in groups of integers that the AVX-512 path uses where fv_vnni_runs_here()
 * (linear_int8.h) is true. */
#include "kernels/cpu/path.h"

fv_cpu_plan_fn fv_vnni_pack_int8_groups_plan, fv_vnni_linear_int8_groups_plan;
fv_cpu_items fv_vnni_pack_int8_groups, fv_vnni_linear_int8_groups;

/* For few rows of x (linear_int8_groups_few_vnni.c): whether it is used; bytes of packed x and of scratch
 * memory; packs row m of x; computes items [begin, end) of a part, 16 columns of y each. */
bool fv_vnni_few_groups(const fv_linear_args *a);
size_t fv_vnni_few_groups_bytes(const fv_linear_args *a);
size_t fv_vnni_few_groups_scratch(const fv_linear_args *a);
void fv_vnni_pack_few_groups(const fv_cpu_packed_linear *b, int64_t m);
void fv_vnni_linear_few_groups(const fv_cpu_packed_linear *b, const fv_linear_part *p,
                               int64_t begin, int64_t end, void *scratch);

#endif
