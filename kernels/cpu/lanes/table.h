#ifndef FOVEA_KERNELS_CPU_LANES_TABLE_H
#define FOVEA_KERNELS_CPU_LANES_TABLE_H

/* All operations with 16-lane vectors, for avx2/isa.c and avx512/isa.c: the entries of their tables, and their lists of
 * implementations. */
#include "kernels/cpu/lanes/activate.h"
#include "kernels/cpu/lanes/attention.h"
#include "kernels/cpu/lanes/attn_latent.h"
#include "kernels/cpu/lanes/attn_lowrank.h"
#include "kernels/cpu/lanes/attn_quantized.h"
#include "kernels/cpu/lanes/causal_conv.h"
#include "kernels/cpu/lanes/delta_rule.h"
#include "kernels/cpu/lanes/importance.h"
#include "kernels/cpu/lanes/index_select.h"
#include "kernels/cpu/lanes/kv_write.h"
#include "kernels/cpu/lanes/latent_codes.h"
#include "kernels/cpu/lanes/linear.h"
#include "kernels/cpu/lanes/linear_bf16.h"
#include "kernels/cpu/lanes/linear_int8.h"
#include "kernels/cpu/lanes/linear_int8_groups.h"
#include "kernels/cpu/lanes/matmul_nn.h"
#include "kernels/cpu/lanes/merge.h"
#include "kernels/cpu/lanes/norm.h"
#include "kernels/cpu/lanes/rope.h"
#include "kernels/cpu/lanes/score_sums.h"
#include "kernels/cpu/lanes/syrk.h"

#define FV_CPU_OP(op) .op##_plan = op##_plan, .op = op,
#define FV_CPU_ROW_OP(op) .op = op,

static const fv_cpu_path path_in_lanes = {
#include "kernels/cpu/ops.def"
};

static const fv_gemm_impl *const gemm_in_lanes[] = {
    &gemm_f32_once, &gemm_f32_few, &gemm_f32,        &gemm_bf16_in_place, &gemm_bf16_few,
    &gemm_bf16,     &gemm_int8,    &gemm_groups_few, &gemm_groups,        NULL};

static const attn_products *const attention_in_lanes[] = {&products_bf16, NULL};

#endif
