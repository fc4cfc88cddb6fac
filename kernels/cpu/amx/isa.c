/* AMX: products in bf16 and of integers of 8 bits in tiles. */
#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "kernels/cpu/amx/products.h"

/* Whether the CPU has AMX for bf16 and int8 and conversions to bf16, and the kernel grants the AMX registers,
 * which it then does for all threads. */
static bool runs_here(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    unsigned a, b, c, d = 0;
    if (!fv_isa_has_avx512() || !__builtin_cpu_supports("avx512bf16")) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    enum { BF16 = 1 << 22, TILE = 1 << 24, INT8 = 1 << 25 };
    if ((d & (BF16 | TILE | INT8)) != (BF16 | TILE | INT8)) return false;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0) return true;
    FV_LOG(WARN, KERNELS, "event=no-amx reason=\"the kernel refuses its registers: %s\"",
           strerror(errno));
    return false;
}

static const fv_gemm_impl *const gemm[] = {
    &fv_amx_bf16_decoded, &fv_amx_bf16_one, &fv_amx_bf16_two,   &fv_amx_bf16,   &fv_amx_int8_one,
    &fv_amx_int8_two,     &fv_amx_int8,     &fv_amx_groups_few, &fv_amx_groups, NULL};

static const attn_products *const attention[] = {&fv_amx_attention, NULL};

const fv_isa fv_isa_amx = {.name = "amx",
                           .runs_here = runs_here,
                           .gemm = gemm,
                           .attention = attention,
                           .packed = &fv_amx_packed_products};
