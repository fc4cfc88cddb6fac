#ifndef FOVEA_POLICY_PLAN_ACCUM_H
#define FOVEA_POLICY_PLAN_ACCUM_H

/* EVICT METHODS THAT KEEP A TALLY (common/accumulator.h): what rule a policy comes to. One file per
 * method, with its fv_accum_<method>. */
#include "policy/plan/plan.h"

/* The rule of an evict stage for a prompt of n_prompt rows, an answer that is taken up again not
 * counted. kind NONE: the policy's evict stage keeps none, or lets nothing go. */
fv_accum_rule fv_accum_of(const fv_policy *policy, int32_t n_prompt);

/* What such a method adds to a plan: its rule, and the attention of the prompt's last `rows`. */
fv_status fv_plan_accum(fv_plan *plan, int32_t rows);

fv_accum_rule fv_accum_h2o(const fv_choice *c, int32_t n_prompt);
fv_accum_rule fv_accum_scissorhands(const fv_choice *c, int32_t n_prompt);
fv_accum_rule fv_accum_tova(const fv_choice *c, int32_t n_prompt);

#endif
