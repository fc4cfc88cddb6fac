#ifndef FOVEA_PREFILL_WORKER_CONDENSE_PRUMERGE_H
#define FOVEA_PREFILL_WORKER_CONDENSE_PRUMERGE_H

/* PRUMERGE (arXiv 2403.15388): which rows stand for the others, and what they take up of them. */
#include "prefill-worker/condense/condense.h"

/* How many of n scores stand out: those above Q3 + 1.5 (Q3 - Q1), quartiles interpolated linearly
 * as NumPy does. FV_ENOMEM. */
fv_status fv_prumerge_outliers(const float *score, int32_t n, int32_t *count);

/* The whole method. With `spread`, rows at even distances stay as well (PruMerge+). */
fv_status fv_prumerge_run(const fv_condense_context *ctx, bool spread, fv_condensed *out);

#endif
