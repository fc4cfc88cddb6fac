/* The AVX2 path: AVX2, FMA and F16C, the instructions of CMakeLists.txt for this file. The bits
 * of the plain path. */
#include "kernels/cpu/lanes_avx2.h"
#include "kernels/cpu/path.h"
#include "kernels/cpu/rowwise.inc"

#include "kernels/cpu/packed_rows.inc"

#include "kernels/cpu/merge.inc"

#include "kernels/cpu/dots.inc"

#include "kernels/cpu/linear.inc"

#include "kernels/cpu/combine.inc"

#include "kernels/cpu/gram.inc"

#include "kernels/cpu/attention.inc"

#include "kernels/cpu/attention_sums.inc"

#include "kernels/cpu/packed_lanes.inc"

#include "kernels/cpu/packed.inc"

#include "kernels/cpu/codes.inc"

const fv_cpu_path fv_cpu_path_avx2 = {
    .isa = "avx2",
    .linear_plan = linear_plan,
    .linear = linear,
    .combine_plan = combine_plan,
    .combine = combine,
    .gram_plan = gram_plan,
    .gram = gram,
    .attention_plan = attention_plan,
    .attention = attention,
    .attention_sums_plan = attention_sums_plan,
    .attention_sums = attention_sums,
    .attn_packed_plan = attn_packed_plan,
    .attn_packed = attn_packed,
    .attn_codes_plan = attn_codes_plan,
    .attn_codes = attn_codes,
    .importance = importance_rows,
    .norm = norm_rows,
    .activate = activate_rows,
    .rope = rope_rows,
    .gather = gather_rows,
    .kv_write = kv_write_rows,
    .merge = merge_rows,
};
