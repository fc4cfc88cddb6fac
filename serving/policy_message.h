#ifndef FOVEA_SERVING_POLICY_MESSAGE_H
#define FOVEA_SERVING_POLICY_MESSAGE_H

/* POLICY MESSAGE: a policy, between inference.proto's form and the engine's. */
#include "common/arena.h"
#include "inference.pb-c.h"
#include "policy/policy.h"

/* Reads a message; NULL is `exact`. FV_EINVAL as in fv_policy_parse. */
fv_status fv_policy_from_message(const Fovea__Inference__V1__Policy *m, fv_policy *out);

/* Makes a message, NULL for `exact`. *out is in the arena; names are borrowed from the table of methods. Parsing
 * the result gives the same policy. */
fv_status fv_policy_to_message(const fv_policy *p, fv_arena *arena,
                               Fovea__Inference__V1__Policy **out);

#endif
