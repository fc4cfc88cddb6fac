/* The plain path's table. */
#include "kernels/cpu/plain.h"

#define FV_CPU_OP(op) .op##_plan = fv_plain_##op##_plan, .op = fv_plain_##op,
#define FV_CPU_AMX_OP FV_CPU_OP
#define FV_CPU_ROW_OP(op) .op = fv_plain_##op,

const fv_cpu_path fv_cpu_path_plain = {
    .isa = "plain",
#include "kernels/cpu/ops.def"
};
