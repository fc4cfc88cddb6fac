/* The AVX-512 path, compiled for F, BW, VL and DQ (CMakeLists.txt), and the AMX path, which shares all but
 * FV_CPU_AMX_OP. */
#include "kernels/cpu/path_lanes.h"

fv_cpu_plan fv_amx_attention_bf16_plan(const void *args) {
    return plan_with(args, &fv_amx_attn_products);
}

void fv_amx_attention_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    attention_with(args, &fv_amx_attn_products, scratch, begin, end);
}

fv_cpu_plan fv_amx_attn_lowrank_bf16_plan(const void *args) {
    return lowrank_plan_with(args, &fv_amx_packed_products);
}

void fv_amx_attn_lowrank_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    lowrank_with(args, &fv_amx_packed_products, scratch, begin, end);
}

fv_cpu_plan fv_amx_attn_quantized_bf16_plan(const void *args) {
    return codes_plan_with(args, &fv_amx_packed_products);
}

void fv_amx_attn_quantized_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    codes_with(args, &fv_amx_packed_products, scratch, begin, end);
}

fv_cpu_plan fv_amx_attn_latent_bf16_plan(const void *args) {
    return latent_plan_with(args, &fv_amx_packed_products);
}

void fv_amx_attn_latent_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    latent_with(args, &fv_amx_packed_products, scratch, begin, end);
}

#define FV_CPU_AMX_OP FV_CPU_OP

const fv_cpu_path fv_cpu_path_avx512 = {
    .isa = "avx512",
#include "kernels/cpu/ops.def"
};

#define FV_CPU_OP(op) .op##_plan = op##_plan, .op = op,
#define FV_CPU_ROW_OP(op) .op = op,
#define FV_CPU_AMX_OP(op) .op##_plan = fv_amx_##op##_plan, .op = fv_amx_##op,

const fv_cpu_path fv_cpu_path_amx = {
    .isa = "amx",
#include "kernels/cpu/ops.def"
};
