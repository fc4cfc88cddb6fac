#ifndef FOVEA_SERVING_POLICY_MESSAGE_H
#define FOVEA_SERVING_POLICY_MESSAGE_H

/* A policy as inference.proto carries it <-> as the engine knows it. */
#include "common/arena.h"
#include "inference.pb-c.h"
#include "policy/policy.h"

/* NULL is `exact`. FV_EINVAL as in fv_policy_parse. */
fv_status fv_policy_from_message(const Fovea__Inference__V1__Policy *m, fv_policy *out);

/* *out is in the arena; strings are the table's. NULL for `exact`. Parsing the result gives the
 * same policy. */
fv_status fv_policy_to_message(const fv_policy *p, fv_arena *arena,
                               Fovea__Inference__V1__Policy **out);

#endif
