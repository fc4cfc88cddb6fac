#ifndef FOVEA_POLICY_PLAN_CONDENSE_H
#define FOVEA_POLICY_PLAN_CONDENSE_H

/* How many rows of an image of n rows the condense methods leave: what the plan counts, and the
 * prefill worker keeps. Pure functions. */
#include "policy/plan/plan.h"

int32_t fv_hired_rows(const fv_condense_hired_params *p, int32_t n);

/* prumerge with a share of its own: rows that stay, at least one if there are any, without the one
 * that is made of the others. */
int32_t fv_prumerge_share(double share, int32_t n);

/* Adds the stage to a plan: each image comes to `most` rows at most; `exact`, to so many. What
 * the stage made, once it has run, is the prompt's. */
fv_status fv_plan_condense(fv_plan *plan, int32_t most, bool exact);

/* Rows of an image ahead of the stage; 0: there is none. */
int32_t fv_plan_image_rows(const fv_plan *plan);

#endif
