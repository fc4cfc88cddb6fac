#ifndef FOVEA_POLICY_PLAN_VTA_H
#define FOVEA_POLICY_PLAN_VTA_H

/* Schedule of evict=vta, for the decode worker, and for the prefill worker when it resumes an
 * answer. */
#include "policy/policy.h"

/* Share of a layer's visual tokens that is left after t tokens of the answer, beta(t): 1 at t = 0,
 * falling, 0 from tau on (except in the exponential form). */
double fv_vta_share(const fv_evict_vta_params *p, int32_t t);

#endif
