#ifndef FOVEA_POLICY_PLAN_ATTENTION_H
#define FOVEA_POLICY_PLAN_ATTENTION_H

/* How packed rows are read under expand=attention, for both workers. */
#include "policy/policy.h"

/* True when a policy wants it: the share of rows that is read at full rank, and how much of a row's
 * importance stays. */
bool fv_attention_reads(const fv_policy *policy, double *full, double *alpha);

#endif
