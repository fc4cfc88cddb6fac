/* The AVX-512 path, compiled for F, BW, VL and DQ. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lanes/table.h"

const fv_isa fv_isa_avx512 = {.name = "avx512",
                              .runs_here = fv_isa_has_avx512,
                              .gemm = gemm_in_lanes,
                              .attention = attention_in_lanes,
                              .packed = &packed_bf16,
                              .path = &path_in_lanes};
