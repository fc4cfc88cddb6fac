#ifndef FOVEA_KERNELS_TIER_H
#define FOVEA_KERNELS_TIER_H

/* How much a backend promises of its bits. Whoever may not mix two of them compares names. */
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fv_tier {
    FV_TIER_EXACT, /* the canonical sums of kernels/ops.h: the CPU, and a GPU by --isa exact */
    FV_TIER_AUTO, /* products round their inputs to the weights' type, and attention to that of keys and values; a row
                    * has the same bits alone and among others */
    FV_TIER_FAST, /* likewise, but a row's bits may depend on how many others are computed with it */
} fv_tier;

/* The tier of an open backend. */
fv_tier fv_backend_tier(const fv_backend *be);

/* "exact", "auto" or "fast". */
static inline const char *fv_tier_name(fv_tier tier) {
    static const char *const names[] = {"exact", "auto", "fast"};
    return names[tier];
}

#ifdef __cplusplus
}
#endif
#endif
