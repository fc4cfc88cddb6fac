#ifndef FOVEA_POLICY_PLAN_CONDENSE_H
#define FOVEA_POLICY_PLAN_CONDENSE_H

/* How many rows of an image of n rows the condense methods leave: what the plan counts, and the
 * prefill worker keeps. Pure functions. */
#include "policy/plan/plan.h"

/* hired: of an image's n tokens; of that budget, for the tile that shows the whole image; and how many of
 * that tile's n patches count for the others. */
int32_t fv_hired_tokens(const fv_condense_hired_params *p, int32_t n);
int32_t fv_hired_whole(const fv_condense_hired_params *p, int32_t budget);
int32_t fv_hired_first(const fv_condense_hired_params *p, int32_t n);

/* prumerge with a share of its own: rows that stay, at least one if there are any, without the one
 * that is made of the others. */
int32_t fv_prumerge_share(double share, int32_t n);

/* What a method leaves of an image of n tokens, by its parameters. */
typedef struct fv_condense_count {
    int32_t most;   /* tokens, at most */
    bool unchanged; /* all of them, as they are */
} fv_condense_count;
typedef fv_condense_count (*fv_condense_count_fn)(const void *params, int32_t n);

typedef struct fv_condense_rule {
    fv_condense_count_fn count;
    bool
        exact; /* an image of one tile comes to count().most tokens; otherwise to so many at most */
    bool tiles; /* images of several tiles too: to so many at most */
} fv_condense_rule;

/* Adds the stage to a plan, unless no image changes. What the stage made, once it has run, is the
 * prompt's. */
fv_status fv_plan_condense(fv_plan *plan, const fv_condense_rule *rule, const void *params);

#endif
