/* The AVX2 path, compiled for AVX2, FMA and F16C. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lanes/table.h"

const fv_isa fv_isa_avx2 = {.name = "avx2",
                            .runs_here = fv_isa_has_avx2,
                            .gemm = gemm_in_lanes,
                            .attention = attention_in_lanes,
                            .packed = &packed_bf16,
                            .path = &path_in_lanes};
