#ifndef FOVEA_POLICY_PLAN_CONDENSE_H
#define FOVEA_POLICY_PLAN_CONDENSE_H

/* How many rows of an image of n rows the condense methods leave: what the plan counts, and the
 * prefill worker keeps. Pure functions. */
#include "policy/plan/plan.h"

int32_t fv_hired_rows(const fv_condense_hired_params *p, int32_t n);

/* prumerge with a share of its own: rows that stay, at least one if there are any, without the one
 * that is made of the others. */
int32_t fv_prumerge_share(double share, int32_t n);

/* What a method leaves of an image of n tokens, by its parameters. */
typedef struct fv_condense_count {
    int32_t most;   /* tokens, at most */
    bool unchanged; /* all of them, as they are */
} fv_condense_count;
typedef fv_condense_count (*fv_condense_count_fn)(const void *params, int32_t n);

/* Adds the stage to a plan, unless no image changes: each image comes to count(params, n).most tokens
 * at most; `exact`, to so many. What the stage made, once it has run, is the prompt's. */
fv_status fv_plan_condense(fv_plan *plan, fv_condense_count_fn count, const void *params,
                           bool exact);

#endif
