#ifndef FOVEA_PREFILL_WORKER_CONDENSE_PRUMERGE_H
#define FOVEA_PREFILL_WORKER_CONDENSE_PRUMERGE_H

/* PRUMERGE (arXiv 2403.15388): chooses the tokens to keep and merges the others into them. */
#include "prefill-worker/condense/condense.h"

/* Counts the outliers among n scores: those above Q3 + 1.5 (Q3 - Q1), quartiles interpolated
 * linearly as NumPy does. FV_ENOMEM. */
fv_status fv_prumerge_outliers(const float *score, int32_t n, int32_t *count);

typedef struct fv_prumerge_rule {
    double keep;        /* share of an image's tokens; 0: as many as are outliers */
    int32_t neighbours; /* merged into each kept token */
    bool spread;        /* tokens at even distances stay as well (PruMerge+) */
} fv_prumerge_rule;

/* Runs the whole method. */
fv_status fv_prumerge_run(const fv_condense_context *ctx, const fv_prumerge_rule *rule,
                          fv_condensed *out);

#endif
