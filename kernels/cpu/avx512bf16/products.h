#ifndef FOVEA_KERNELS_CPU_AVX512BF16_PRODUCTS_H
#define FOVEA_KERNELS_CPU_AVX512BF16_PRODUCTS_H

/* The products that AVX-512 BF16 computes. */
#include "kernels/cpu/attention_item.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/packed_products.h"

extern const fv_gemm_impl fv_avx512bf16_in_place, fv_avx512bf16_e4m3, fv_avx512bf16_decoded,
    fv_avx512bf16_panels_few, fv_avx512bf16_panels;
extern const attn_products fv_avx512bf16_attention_decode, fv_avx512bf16_attention_prefill;
extern const packed_products fv_avx512bf16_packed_products;
extern const packed_words fv_avx512bf16_packed_words;
void fv_avx512bf16_coded_words(const coded_tile *t, uint32_t *to, size_t ld);

/* Whether this processor's VDPBF16PS adds the upper product and then the lower one, each rounded, with
 * subnormals flushed. */
bool fv_avx512bf16_is_canonical(void);

#endif
