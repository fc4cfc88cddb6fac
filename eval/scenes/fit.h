#ifndef FOVEA_EVAL_SCENES_FIT_H
#define FOVEA_EVAL_SCENES_FIT_H

/* FIT: makes a FitPrune schedule (arXiv 2409.10197) from the maximum attention that visual tokens
 * receive on some prompts. Pure functions: any thread.
 *
 * With x_lj = sum over text tokens i of max_h A_l[h, i, j] and y_lj the same over visual tokens, a
 * budget a, and for each prompt the remaining tokens j: layer l drops j if both sums over the
 * dropped tokens, sum_{k dropped or before j, ascending} x_lk <= a sum_k x_lk, and the same with y,
 * until the work of all prompts is down to 1 - target of the work with all tokens. The schedule is
 * the mean over prompts of the number of tokens dropped after each layer, rounded down; a is the
 * smallest value, to 1 / 128, that meets the target. x and y are from a run that drops no token;
 * the authors run the network again for each a, with tokens dropped. */
#include <stdint.h>

#include "common/schedule.h"
#include "common/status.h"

typedef struct fv_fit_prompt {
    int32_t n;          /* image tokens; 0: the prompt is ignored */
    const float *x, *y; /* [n_layer, n] */
} fv_fit_prompt;

/* Multiply-adds of a layer with n visual tokens, of which `left` remain after it:
 *   n row_in + n^2 pair + left row_out
 * projections to queries, keys and values; attention; output projection and FFN. As in the authors'
 * count, tokens are dropped between attention and output projection. */
typedef struct fv_fit_work {
    double row_in, pair, row_out;
} fv_fit_work;

/* Result of a fit. */
typedef struct fv_fitted {
    fv_schedule schedule;
    double alpha; /* the budget */
    double saved; /* share of work saved by the prompts' own counts */
} fv_fitted;

/* Fits a schedule. target in percent, 1..99. FV_EDATA if no prompt has an image row. */
fv_status fv_fit(const fv_fit_prompt *prompt, int32_t n, int32_t n_layer, const fv_fit_work *work,
                 int32_t target, fv_fitted *out);

#endif
