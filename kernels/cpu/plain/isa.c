/* The plain path, which every x86-64 runs, and the specification of all others. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/plain/gemm.h"
#include "kernels/cpu/plain/plain.h"

static bool runs_here(void) { return true; }

#define FV_CPU_OP(op) .op##_plan = fv_plain_##op##_plan, .op = fv_plain_##op,
#define FV_CPU_ROW_OP(op) .op = fv_plain_##op,

static const fv_cpu_path path = {
#include "kernels/cpu/ops.def"
};

static const fv_gemm_impl *const gemm[] = {&fv_plain_gemm_f32, &fv_plain_gemm_bf16,
                                           &fv_plain_gemm_int8, &fv_plain_gemm_groups, NULL};

const fv_isa fv_isa_plain = {.name = "plain", .runs_here = runs_here, .gemm = gemm, .path = &path};
