#ifndef FOVEA_POLICY_PLAN_VTA_H
#define FOVEA_POLICY_PLAN_VTA_H

/* The clock of evict=vta: what the decode worker lets go by, and the prefill worker when it takes
 * up an answer again. */
#include "policy/policy.h"

/* The share of a layer's visual tokens that is left when t tokens of the answer are there, beta(t);
 * 1 at t = 0, falling, 0 from tau on (but in the exponential form). */
double fv_vta_share(const fv_evict_vta_params *p, int32_t t);

#endif
