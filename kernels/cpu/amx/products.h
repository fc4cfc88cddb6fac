#ifndef FOVEA_KERNELS_CPU_AMX_PRODUCTS_H
#define FOVEA_KERNELS_CPU_AMX_PRODUCTS_H

/* The products that AMX computes. */
#include "kernels/cpu/attention_item.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/packed_products.h"

extern const fv_gemm_impl fv_amx_bf16_decoded, fv_amx_bf16_one, fv_amx_bf16_two, fv_amx_bf16,
    fv_amx_int8_one, fv_amx_int8_two, fv_amx_int8, fv_amx_groups_few, fv_amx_groups;
extern const attn_products fv_amx_attention;
extern const packed_products fv_amx_packed_products;

#endif
