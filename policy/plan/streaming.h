#ifndef FOVEA_POLICY_PLAN_STREAMING_H
#define FOVEA_POLICY_PLAN_STREAMING_H

/* Geometry of select=streaming, for the plan and the prefill worker. */
#include "policy/policy.h"

/* A head keeps the prompt positions pos < sink and pos >= recent_from. */
typedef struct fv_streaming_span {
    int32_t sink, recent_from;
} fv_streaming_span;

/* Head `head` of n_kv, for a prompt of n_prompt tokens. The first ceil(full_heads * n_kv) heads
 * keep everything (recent_from = 0). */
fv_streaming_span fv_streaming_head(const fv_select_streaming_params *p, int32_t head, int32_t n_kv,
                                    int32_t n_prompt);

#endif
