#ifndef FOVEA_ROUTER_CHOOSE_H
#define FOVEA_ROUTER_CHOOSE_H

/* CHOOSE: which worker gets a request. Two are drawn at random and the better one is taken: almost
 * as even as taking the best of all, and reports that are a little old do not send everybody to
 * the same one (Mitzenmacher, "The Power of Two Choices", 2001).
 *
 *   decode worker    better: the smaller part of its KV would be taken; then fewer requests
 *   prefill worker   better: fewer requests
 *
 * Pure functions of the members and of *random. */
#include "router/members.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FV_PREFILL_MAX = 16 }; /* requests that are handed to one prefill worker at a time */

/* Bytes of a decode worker's KV that are spoken for: what it says, or what we gave it since. */
uint64_t fv_member_bytes_used(const fv_member *w);

/* A ready worker of the role with room for a request that needs `bytes` of KV; NULL when there is
 * none now. A decode worker that nobody uses always has room: whether it can be done at all is its
 * own word, as it knows the exact number. */
fv_member *fv_choose(const fv_members *m, Fovea__Inference__V1__Role role, uint64_t bytes,
                     uint64_t *random);

#ifdef __cplusplus
}
#endif
#endif
