/* Chooses the instruction sets that a backend uses, once, when it opens. */
#include "kernels/cpu/isa.h"

#include <assert.h>
#include <cpuid.h>
#include <string.h>

#include "common/log.h"

/* __builtin_cpu_supports also checks that the operating system saves the registers. */
bool fv_isa_has_avx2(void) {
    unsigned a, b, c = 0, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool fv_isa_has_avx512(void) {
    return fv_isa_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

static const fv_isa *const isas[] = {
#define FV_ISA(name, flags) &fv_isa_##name,
#include "kernels/cpu/isa.def"
};

enum { N_ISA = sizeof isas / sizeof *isas };

static const char *assumed = "";

void fv_isa_assume(const char *name) { assumed = name; }

static bool runs_here(const fv_isa *i) { return strcmp(i->name, assumed) == 0 || i->runs_here(); }

/* Adds what `i` implements, after what `out` has. */
static void add(const fv_isa *i, fv_isa_choice *out) {
    int n = 0;
    while (out->gemm[n]) n++;
    for (const fv_gemm_impl *const *p = i->gemm; p && *p; p++, n++) {
        assert(n < FV_ISA_LIST_MAX - 1);
        out->gemm[n] = *p;
        out->gemm_isa[n] = i->name;
    }
    for (n = 0; out->attention[n];) n++;
    for (const attn_products *const *p = i->attention; p && *p; p++, n++) {
        assert(n < FV_ISA_LIST_MAX - 1);
        out->attention[n] = *p;
    }
    if (!out->packed) out->packed = i->packed;
    if (!out->panels && i->packed && !i->packed->open) out->panels = i->packed;
    if (!out->latent_keys) out->latent_keys = i->latent_keys;
    if (!out->path) out->path = i->path;
}

static fv_status unknown(const char *name) {
    char known[128] = "auto";
    for (int i = N_ISA - 1; i >= 0; i--) {
        strcat(known, i > 0 ? ", " : " or ");
        strcat(known, isas[i]->name);
    }
    return FV_FAIL(FV_EINVAL, "isa '%s': choose %s", name, known);
}

fv_status fv_isa_choose(const char *name, fv_isa_choice *out) {
    const bool any = !name || strcmp(name, "auto") == 0;
    fv_isa_choice c = {0};
    for (int i = 0; i < N_ISA; i++) {
        if (!c.name && !any && strcmp(name, isas[i]->name) != 0) continue;
        if (runs_here(isas[i])) {
            if (!c.name) c.name = isas[i]->name;
            add(isas[i], &c);
        } else if (!c.name && !any) {
            return FV_FAIL(FV_EUNSUPPORTED, "this CPU cannot run %s: choose auto", name);
        }
    }
    if (!c.name) return unknown(name);
    *out = c;
    return FV_OK;
}

/* ---- products -------------------------------------------------------------------------- */

static const char *const product_names[] = {"f32", "bf16", "int8", "int8-groups", "int4-groups"};
_Static_assert(sizeof product_names / sizeof *product_names == FV_N_PRODUCT, "a name for each");

static void log_first_use(fv_isa_choice *isa, int i, fv_product product) {
    const uint64_t bit = (uint64_t)1 << i;
    if (__atomic_load_n(&isa->logged, __ATOMIC_RELAXED) & bit) return;
    if (__atomic_fetch_or(&isa->logged, bit, __ATOMIC_RELAXED) & bit) return;
    FV_LOG(INFO, KERNELS, "gemm=%s product=%s variant=%s", isa->gemm_isa[i], product_names[product],
           isa->gemm[i]->name);
}

const fv_gemm_impl *fv_gemm_choose(fv_isa_choice *isa, fv_product product, const fv_linear_args *a,
                                   const fv_tensor *w) {
    for (int i = 0;; i++) {
        const fv_gemm_impl *f = isa->gemm[i];
        assert(f); /* plain takes everything */
        if (!(f->x->products >> product & 1) || (f->rows_max && a->x.rows > f->rows_max)) continue;
        if (f->takes && !f->takes(a, w)) continue;
        log_first_use(isa, i, product);
        return f;
    }
}
