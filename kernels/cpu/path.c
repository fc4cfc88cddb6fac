/* Chooses the CPU backend's instruction set, once, when it opens. */
#include "kernels/cpu/path.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"

/* __builtin_cpu_supports also checks that the operating system saves the registers. */
static bool has_avx2(void) {
    unsigned a, b, c = 0, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* Whether the CPU has AMX for bf16 and int8 and conversions to bf16, and the kernel grants the AMX registers,
 * which it then does for all threads. */
static bool has_amx(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    unsigned a, b, c, d = 0;
    if (!has_avx512() || !__builtin_cpu_supports("avx512bf16")) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    enum { BF16 = 1 << 22, TILE = 1 << 24, INT8 = 1 << 25 };
    if ((d & (BF16 | TILE | INT8)) != (BF16 | TILE | INT8)) return false;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0) return true;
    FV_LOG(WARN, KERNELS, "event=no-amx reason=\"the kernel refuses its registers: %s\"",
           strerror(errno));
    return false;
}

static bool has_anything(void) { return true; }

static const struct {
    const fv_cpu_path *path;
    bool (*runs_here)(void);
} paths[] = {
    {&fv_cpu_path_amx, has_amx}, /* best first */
    {&fv_cpu_path_avx512, has_avx512},
    {&fv_cpu_path_avx2, has_avx2},
    {&fv_cpu_path_plain, has_anything},
};

enum { N_PATH = sizeof paths / sizeof *paths };

fv_status fv_cpu_path_find(const char *isa, const fv_cpu_path **out) {
    bool any = !isa || strcmp(isa, "auto") == 0;
    for (int i = 0; i < N_PATH; i++) {
        if (!any && strcmp(isa, paths[i].path->isa) != 0) continue;
        if (paths[i].runs_here()) {
            *out = paths[i].path;
            return FV_OK;
        }
        if (!any)
            return FV_FAIL(FV_EUNSUPPORTED, "this CPU cannot run the %s path: choose auto", isa);
    }
    return FV_FAIL(FV_EINVAL, "isa '%s': choose auto, plain, avx2, avx512 or amx", isa);
}
