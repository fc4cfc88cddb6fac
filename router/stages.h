#ifndef FOVEA_ROUTER_STAGES_H
#define FOVEA_ROUTER_STAGES_H

/* REQUEST -> A PREFILL AND A DECODE WORKER, AND THE STREAM BACK. What a request meets here, in this
 * order; router.h puts it together. */
/* clang-format off */
#include "router/registry.h"  /* the workers that have joined, and how they are */
#include "router/admit.h"    /* is the request right, and how many bytes may its KV take */
#include "router/deadline.h" /* will it be answered in time */
#include "router/relay.h"    /* the queue; whose turn it is, and again when a worker was lost */
#include "router/balancer.h"   /* which of the workers: the better of two */
#include "router/breaker.h"  /* who fails again and again gets a rest */
#include "router/reservation.h"    /* what is taken of a worker, until it is given back */
#include "router/generate.h" /* the client's call, token by token */
#include "router/merge.h"    /* the halves of the report become one */
#include "router/fleet_info.h" /* what is served here, and by whom */
/* clang-format on */

#endif
