#ifndef FOVEA_POLICY_PLAN_VISIPRUNER_H
#define FOVEA_POLICY_PLAN_VISIPRUNER_H

/* Parameters of prune=visipruner that both the plan and the prefill worker read. */
#include "policy/policy.h"

/* Layer after which tokens are filtered in any case; -1: where the test finds it. FV_EINVAL for
 * other text. */
fv_status fv_visipruner_filter(const fv_prune_visipruner_params *p, int32_t n_layer,
                               int32_t *layer);

#endif
