#ifndef FOVEA_KERNELS_CPU_AVX512VNNI_GEMM_H
#define FOVEA_KERNELS_CPU_AVX512VNNI_GEMM_H

/* Products of integers with AVX-512 VNNI. */
#include "kernels/cpu/gemm.h"

extern const fv_gemm_impl fv_avx512vnni_int8_few, fv_avx512vnni_int8,
    fv_avx512vnni_groups_pipelined, fv_avx512vnni_groups_few, fv_avx512vnni_groups;

#endif
