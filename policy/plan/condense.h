#ifndef FOVEA_POLICY_PLAN_CONDENSE_H
#define FOVEA_POLICY_PLAN_CONDENSE_H

/* Numbers of tokens that the condense methods leave of an image of n tokens: the plan counts them,
 * the prefill worker keeps them. Pure functions. */
#include "policy/plan/plan.h"

/* hired: tokens kept of an image's n; tokens of that budget for the tile that shows the whole
 * image; and the number of that tile's n patches by whose first-layer attention the rest is divided
 * among the other tiles. */
int32_t fv_hired_tokens(const fv_condense_hired_params *p, int32_t n);
int32_t fv_hired_whole(const fv_condense_hired_params *p, int32_t budget);
int32_t fv_hired_first(const fv_condense_hired_params *p, int32_t n);

/* prumerge with a `keep` share: rows that stay, at least one if there are any, without the merged
 * row. */
int32_t fv_prumerge_share(double share, int32_t n);

/* Result of a method for an image of n tokens. */
typedef struct fv_condense_count {
    int32_t most;   /* upper bound on its tokens */
    bool unchanged; /* all tokens stay unchanged */
} fv_condense_count;
typedef fv_condense_count (*fv_condense_count_fn)(const void *params, int32_t n);

typedef struct fv_condense_rule {
    fv_condense_count_fn count;
    bool exact; /* an image of one tile has exactly count().most tokens; otherwise at most that */
    bool tiles; /* the method also handles images of several tiles; `most` is then an upper bound */
} fv_condense_rule;

/* Adds the stage to a plan, unless no image changes. The result of the stage, once it has run, is
 * in the plan's shape. */
fv_status fv_plan_condense(fv_plan *plan, const fv_condense_rule *rule, const void *params);

#endif
