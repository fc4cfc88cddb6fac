#ifndef FOVEA_POLICY_CONFLICTS_H
#define FOVEA_POLICY_CONFLICTS_H

/* CONFLICTS: pairs of methods that cannot be combined in one policy, with reasons, from the table
 * in methods.def. */
#include "policy/policy.h"

/* Two patterns "stage=method" and a reason. A pattern may add words that the method's choices must
 * have, ",order=ema", or must not have, ",order!=ema"; a method without that choice matches the
 * latter. The method `*` matches any. */
typedef struct fv_conflict {
    const char *a, *b, *why;
} fv_conflict;

const fv_conflict *fv_conflicts(int32_t *n);

/* Returns whether the policy matches the pattern. */
bool fv_policy_matches(const fv_policy *p, const char *pattern);

/* FV_EINVAL with both patterns and the reason if the policy matches both patterns of a conflict. */
fv_status fv_conflicts_check(const fv_policy *p, const fv_conflict *table, int32_t n);

#endif
