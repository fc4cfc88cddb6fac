#ifndef FOVEA_POLICY_PLAN_VTA_H
#define FOVEA_POLICY_PLAN_VTA_H

/* The clock of evict=vta: what the decode worker lets go by, and the prefill worker when it takes
 * up an answer again. */
#include "policy/policy.h"

/* The share of a layer's visual tokens that is left when t tokens of the answer are there, beta(t);
 * 1 at t = 0, falling, 0 from tau on (but in the exponential form). */
double fv_vta_share(const fv_choice *c, int32_t t);

/* order=ema: packed rows leave by their importance at that moment, and not by the prompt's. */
bool fv_vta_by_importance(const fv_choice *c);

#endif
