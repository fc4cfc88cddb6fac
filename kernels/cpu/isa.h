#ifndef FOVEA_KERNELS_CPU_ISA_H
#define FOVEA_KERNELS_CPU_ISA_H

/* Instruction sets (isa.def): what is implemented for each, and what a backend may use.
 *
 * A backend opened for an instruction set uses it and those after it in isa.def, as far as the machine runs them.
 * Every list of implementations is searched in that order, so a new instruction set is one folder and one row. All of
 * them have the same bits; "plain" is the specification. */
#include "kernels/cpu/attention_item.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/packed_products.h"
#include "kernels/cpu/path.h"

/* The implementations of one instruction set. Lists end with NULL, the first choice first; a member that is NULL is left to
 * the instruction sets after this one. */
typedef struct fv_isa {
    const char *name;        /* as in isa.def */
    bool (*runs_here)(void); /* whether this machine runs it, with canonical sums */
    const fv_gemm_impl *const *gemm;
    const attn_products *const *attention; /* in bf16 */
    const packed_products *packed;         /* of attention on packed rows, in bf16 */
    latent_keys_fn *latent_keys;           /* called outside packed_products' open() and close() */
    const fv_cpu_path *path;               /* all other operations */
} fv_isa;

enum { FV_ISA_LIST_MAX = 64 };

/* The implementations that a backend may use: those of its instruction sets, in order. */
struct fv_isa_choice {
    const char *name; /* the best instruction set among them */
    const fv_cpu_path *path;
    const fv_gemm_impl *gemm[FV_ISA_LIST_MAX]; /* ends with NULL */
    const char *gemm_isa[FV_ISA_LIST_MAX];     /* the name of the instruction set of each */
    const attn_products *attention[FV_ISA_LIST_MAX];
    const packed_products *packed;
    const packed_products *panels; /* the best of them without open() */
    latent_keys_fn *latent_keys;   /* or NULL */
    uint64_t logged;               /* bit i: gemm[i] is in the log; set atomically */
};

/* Chooses the instruction set called `name`, or the best one for "auto" or NULL. FV_EINVAL for an unknown name,
 * FV_EUNSUPPORTED for one that this machine does not run. Requests AMX from the kernel, so call it before starting the
 * threads that use it. */
fv_status fv_isa_choose(const char *name, fv_isa_choice *out);

/* Makes fv_isa_choose() treat the instruction set called `name` as one that runs here, for a program that emulates
 * its instructions. Not while other threads choose. */
void fv_isa_assume(const char *name);

/* The implementation that computes part w of a product of x; logged when it is first used. */
const fv_gemm_impl *fv_gemm_choose(fv_isa_choice *isa, fv_product product, const fv_linear_args *a,
                                   const fv_tensor *w);

/* Whether this machine has AVX2 with FMA and F16C, and AVX-512 F, BW, VL and DQ besides. */
bool fv_isa_has_avx2(void), fv_isa_has_avx512(void);

#define FV_ISA(name, flags) extern const fv_isa fv_isa_##name;
#include "kernels/cpu/isa.def"

#endif
