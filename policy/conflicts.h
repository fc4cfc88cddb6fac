#ifndef FOVEA_POLICY_CONFLICTS_H
#define FOVEA_POLICY_CONFLICTS_H

/* CONFLICTS: methods that cannot be combined in one policy, and why. From the table in
 * methods.def. */
#include "policy/policy.h"

/* Two patterns "stage=method", and a sentence. A pattern may go on with words that the method's
 * choices must have, ",order=ema", or must not, ",order!=ema", which a method without that choice
 * has not either; the method `*` is any. */
typedef struct fv_conflict {
    const char *a, *b, *why;
} fv_conflict;

const fv_conflict *fv_conflicts(int32_t *n);

/* Whether the policy is one that the pattern describes. */
bool fv_policy_matches(const fv_policy *p, const char *pattern);

/* FV_EINVAL with both patterns and the sentence when some pair meets. */
fv_status fv_conflicts_check(const fv_policy *p, const fv_conflict *table, int32_t n);

#endif
