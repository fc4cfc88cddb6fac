/* AVX-512 BF16: canonical products in bf16. */
#include "kernels/cpu/isa.h"

#include "kernels/cpu/avx512bf16/products.h"

static bool runs_here(void) {
    return fv_isa_has_avx512() && __builtin_cpu_supports("avx512bf16") &&
           fv_avx512bf16_is_canonical();
}

static const fv_gemm_impl *const gemm[] = {&fv_avx512bf16_in_place, &fv_avx512bf16_e4m3,
                                           &fv_avx512bf16_decoded,  &fv_avx512bf16_panels_few,
                                           &fv_avx512bf16_panels,   NULL};

static const attn_products *const attention[] = {&fv_avx512bf16_attention_decode,
                                                 &fv_avx512bf16_attention_prefill, NULL};

const fv_isa fv_isa_avx512bf16 = {.name = "avx512bf16",
                                  .runs_here = runs_here,
                                  .gemm = gemm,
                                  .attention = attention,
                                  .packed = &fv_avx512bf16_packed_products};
