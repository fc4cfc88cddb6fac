/* The AVX2 path, compiled for AVX2, FMA and F16C (CMakeLists.txt). */
#include "kernels/cpu/path_lanes.h"

#define FV_CPU_AMX_OP FV_CPU_OP

const fv_cpu_path fv_cpu_path_avx2 = {
    .isa = "avx2",
#include "kernels/cpu/ops.def"
};
