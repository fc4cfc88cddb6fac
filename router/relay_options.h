#ifndef FOVEA_ROUTER_RELAY_OPTIONS_H
#define FOVEA_ROUTER_RELAY_OPTIONS_H

/* RELAY OPTIONS: the settings of the requests' way through the fleet (router/relay.h). */
#include "router/accounts.h"
#include "router/hints.h"
#include "router/registry.h"

typedef struct fv_relay fv_relay; /* all requests; private to the files of the relay */

typedef struct fv_relay_options {
    const char *router_id; /* unique among routers; borrowed */
    const char *zone;      /* of the router; borrowed; "": unknown */
    fv_bridge *bridge;     /* borrowed */
    fv_registry *members;  /* borrowed */
    fv_hints *hints;       /* borrowed; NULL: requests are routed without */
    const fv_key *secret;  /* the fleet's; borrowed */
    fv_tenancy *tenancy;   /* borrowed */
    fv_accounts *sharers;  /* borrowed */
    int32_t queue_max;     /* waiting requests */
    size_t bytes_max;      /* of all requests' serialized messages together */
    int64_t deadline_ms;   /* default and maximum of a request */
    int64_t wait_ms;       /* how long to wait for a worker if a role has none */
    int64_t stall_ms;      /* a request without progress for this long: its worker hangs */
    int64_t unread_ms;     /* an answer that its client does not read for this long is ended */
    int32_t replays;       /* how many times another pair may take over a request */
    uint32_t
        max_tokens_default; /* of an answer whose request has no max_tokens; 0: the rest of the context */
} fv_relay_options;

/* Limit of the events, in bytes, that wait for a slow client in its call's queue. When the queue is full, the
 * router stops reading the decode worker's call, and the answer pauses there. */
enum { FV_RELAY_QUEUE_BYTES = 16 << 10 };

#endif
