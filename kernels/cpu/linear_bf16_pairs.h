#ifndef FOVEA_KERNELS_CPU_LINEAR_BF16_PAIRS_H
#define FOVEA_KERNELS_CPU_LINEAR_BF16_PAIRS_H

/* Products with weights in bf16 that the AVX-512 path uses where fv_pairs_take() is true. */
#include <stdbool.h>

#include "kernels/cpu/path.h"

bool fv_pairs_take(const fv_linear_args *a);

fv_cpu_plan_fn fv_pairs_pack_bf16_plan, fv_pairs_linear_bf16_plan;
fv_cpu_items fv_pairs_pack_bf16, fv_pairs_linear_bf16;

#endif
