#ifndef FOVEA_EVAL_SCENES_FIT_H
#define FOVEA_EVAL_SCENES_FIT_H

/* FIT: a schedule of FitPrune (arXiv 2409.10197, its recipe), from what image tokens are paid at most
 * on some prompts. Pure functions: any thread.
 *
 * With x_lj = sum over text tokens i of max_h A_l[h, i, j] and y_lj the same over image tokens, a
 * budget a, and for each prompt the rows j that are left: layer l lets go of j when both sums of
 * what is gone by then, sum_{k gone or before j, ascending} x_lk <= a sum_k x_lk,   and with y
 * likewise, until the work of all prompts is down to 1 - target of what it is with every row The
 * schedule is the mean over prompts of how many rows leave behind each layer, rounded down; a is
 * the smallest, to 1 / 128, with which the target is met. x and y are those of a run that lets no
 * row leave; the authors run the network anew for each a, rows left out. */
#include <stdint.h>

#include "common/schedule.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_fit_prompt {
    int32_t n;          /* image tokens; 0: it says nothing */
    const float *x, *y; /* [n_layer, n] */
} fv_fit_prompt;

/* Multiply-adds that n image tokens of a layer cost, of which `left` are left behind it:
 *   n row_in + n^2 pair + left row_out
 * projections to queries, keys and values; attention; output projection and FFN. The authors count
 * so: rows leave between attention and output projection. */
typedef struct fv_fit_work {
    double row_in, pair, row_out;
} fv_fit_work;

/* What it came to. */
typedef struct fv_fitted {
    fv_schedule schedule;
    double alpha; /* the budget */
    double saved; /* share of the work that the prompts' own counts save */
} fv_fitted;

/* target in per cent, 1..99. FV_EDATA when no prompt has an image row. */
fv_status fv_fit(const fv_fit_prompt *prompt, int32_t n, int32_t n_layer, const fv_fit_work *work,
                 int32_t target, fv_fitted *out);

#ifdef __cplusplus
}
#endif
#endif
