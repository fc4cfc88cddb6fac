#ifndef FOVEA_KERNELS_CPU_PATH_LANES_H
#define FOVEA_KERNELS_CPU_PATH_LANES_H

/* All operations of a path with 16-lane vectors, and its table's entries, for path_avx2.c and path_avx512.c,
 * which define FV_CPU_AMX_OP themselves. */
#include "kernels/cpu/activate_lanes.h"
#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/attn_latent_lanes.h"
#include "kernels/cpu/attn_lowrank_lanes.h"
#include "kernels/cpu/attn_quantized_lanes.h"
#include "kernels/cpu/importance_lanes.h"
#include "kernels/cpu/index_select_lanes.h"
#include "kernels/cpu/kv_write_lanes.h"
#include "kernels/cpu/latent_codes_lanes.h"
#include "kernels/cpu/linear_bf16_lanes.h"
#include "kernels/cpu/linear_int8_groups_lanes.h"
#include "kernels/cpu/linear_int8_lanes.h"
#include "kernels/cpu/linear_lanes.h"
#include "kernels/cpu/matmul_nn_lanes.h"
#include "kernels/cpu/merge_lanes.h"
#include "kernels/cpu/norm_lanes.h"
#include "kernels/cpu/rope_lanes.h"
#include "kernels/cpu/score_sums_lanes.h"
#include "kernels/cpu/syrk_lanes.h"

#define FV_CPU_OP(op) .op##_plan = op##_plan, .op = op,
#define FV_CPU_ROW_OP(op) .op = op,

#endif
