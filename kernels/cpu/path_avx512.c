/* The AVX-512 path: F, BW, VL and DQ, the instructions of CMakeLists.txt for this file. The bits
 * of the plain path. */
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/path.h"
#include "kernels/cpu/rowwise.inc"

#include "kernels/cpu/packed_rows.inc"

#include "kernels/cpu/merge.inc"

#include "kernels/cpu/dots.inc"

#include "kernels/cpu/linear.inc"

#include "kernels/cpu/matmul_nn.inc"

#include "kernels/cpu/syrk.inc"

#include "kernels/cpu/attention.inc"

#include "kernels/cpu/score_sums.inc"

#include "kernels/cpu/packed_lanes.inc"

#include "kernels/cpu/packed.inc"

#include "kernels/cpu/codes.inc"

const fv_cpu_path fv_cpu_path_avx512 = {
    .isa = "avx512",
    .linear_plan = linear_plan,
    .linear = linear,
    .matmul_nn_plan = matmul_nn_plan,
    .matmul_nn = matmul_nn,
    .syrk_plan = syrk_plan,
    .syrk = syrk,
    .attention_plan = attention_plan,
    .attention = attention,
    .score_sums_plan = score_sums_plan,
    .score_sums = score_sums,
    .attn_lowrank_plan = attn_lowrank_plan,
    .attn_lowrank = attn_lowrank,
    .attn_quantized_plan = attn_quantized_plan,
    .attn_quantized = attn_quantized,
    .importance = importance_rows,
    .norm = norm_rows,
    .activate = activate_rows,
    .rope = rope_rows,
    .index_select = index_select_rows,
    .kv_write = kv_write_rows,
    .merge = merge_rows,
};
