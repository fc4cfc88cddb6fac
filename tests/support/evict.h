#ifndef FOVEA_TESTS_SUPPORT_EVICT_H
#define FOVEA_TESTS_SUPPORT_EVICT_H

/* Makes the eviction of a policy given as text, as a hand-off brings it. */
#include "decode-worker/evict/evict.h"

static inline fv_status evict_init(fv_evict *e, const char *policy, int32_t n_prompt) {
    fv_policy p;
    fv_decode_plan plan;
    FV_TRY(fv_policy_parse(policy, &p));
    fv_decode_plan_make(&p, n_prompt, &plan);
    fv_evict_init(e, &plan, n_prompt);
    return FV_OK;
}

#endif
