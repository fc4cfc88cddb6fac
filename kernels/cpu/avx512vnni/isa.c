/* AVX-512 VNNI: products of integers of 8 bits. */
#include "kernels/cpu/isa.h"

#include "kernels/cpu/avx512vnni/gemm.h"

static bool runs_here(void) { return fv_isa_has_avx512() && __builtin_cpu_supports("avx512vnni"); }

static const fv_gemm_impl *const gemm[] = {
    &fv_avx512vnni_int8_few,   &fv_avx512vnni_int8,   &fv_avx512vnni_groups_pipelined,
    &fv_avx512vnni_groups_few, &fv_avx512vnni_groups, NULL};

const fv_isa fv_isa_avx512vnni = {.name = "avx512vnni",
                                  .runs_here = runs_here,
                                  .gemm = gemm,
                                  .latent_keys = fv_avx512vnni_latent_keys};
