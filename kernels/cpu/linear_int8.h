#ifndef FOVEA_KERNELS_CPU_LINEAR_INT8_H
#define FOVEA_KERNELS_CPU_LINEAR_INT8_H

/* Products with weights in int8 that the AVX-512 path uses where fv_vnni_runs_here() is true. */
#include <stdbool.h>

#include "kernels/cpu/path.h"

bool fv_vnni_runs_here(void);

fv_cpu_plan_fn fv_vnni_pack_int8_plan, fv_vnni_linear_int8_plan;
fv_cpu_items fv_vnni_pack_int8, fv_vnni_linear_int8;

#endif
