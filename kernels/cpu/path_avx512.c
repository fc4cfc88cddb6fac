/* The AVX-512 path: F, BW, VL and DQ, the instructions that CMakeLists.txt has for this file. */
#include "kernels/cpu/path_lanes.h"

const fv_cpu_path fv_cpu_path_avx512 = {
    .isa = "avx512",
#include "kernels/cpu/ops.def"
};
