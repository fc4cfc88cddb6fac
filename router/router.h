#ifndef FOVEA_ROUTER_ROUTER_H
#define FOVEA_ROUTER_ROUTER_H

/* THE ROUTER: the Inference service for clients and the Fleet service for workers. Their parts:
 * registry.h (the workers), relay.h (the life of requests), admit.h (is a request valid), deadline.h (can
 * it be in time), queue.h (which one is next), balancer.h and breaker.h (on which workers), reservation.h
 * (what is reserved there), generate.h (the client's call), merge.h (the report). Loop thread. */
#include "auth/mac.h"
#include "common/client_address.h"
#include "rpc/server.h"

typedef struct fv_router fv_router; /* opaque */

typedef struct fv_router_options {
    fv_key fleet;        /* derived from the fleet's secret, which workers must prove to know */
    fv_tls *tls;         /* fleet members are identified by certificates; NULL: by tokens */
    uint32_t renew_ms;   /* a worker joins again on a new connection after this time; 0: never */
    const char *spiffe;  /* --tls-spiffe; with `tls`. Both borrowed */
    const char *zone;    /* whose workers it prefers; borrowed; NULL or "": none is preferred */
    int32_t queue_max;   /* waiting requests */
    size_t queue_bytes;  /* of all waiting and running requests */
    const char *tenants; /* file of tenants (auth/tenants.h); borrowed; NULL: anybody may call */
    /* Proxies whose x-forwarded-for is believed; borrowed; NULL: none. */
    const fv_trusted *trusted;
    int64_t unread_ms;   /* an answer that its client does not read for this long is ended */
    int64_t deadline_ms; /* default and maximum of a request */
    int64_t wait_ms;     /* how long to wait for a worker if a role has none */
    size_t hints;        /* beginnings of prompts whose keepers are remembered; 0: none, nor used */
    int32_t replays;     /* how many times another pair may take over a request */
    uint32_t
        max_tokens_default; /* of an answer, if the request has no max_tokens; 0: the rest of the context */
    uint32_t report_ms;  /* interval of worker reports */
    uint32_t silence_ms; /* a worker is lost after this long without a report */
    /* A worker hangs if a request that it works on makes no progress for this long. */
    int64_t stall_ms;
    /* Called when it changes whether requests can be served; false at first. */
    void (*on_serving)(void *user, bool serving);
    void *user;
} fv_router_options;

/* FV_EINVAL: the file of tenants is wrong. */
fv_status fv_router_open(fv_bridge *bridge, const fv_router_options *opt, fv_router **out);

fv_rpc_service fv_router_clients_service(fv_router *r); /* Inference */
/* Fleet, for a listener of its own: clients must not reach it. Stop its server after
 * the others, so that running requests keep their workers. */
fv_rpc_service fv_router_fleet_service(fv_router *r);

/* Sets the metrics that are computed from the router's state. */
void fv_router_measure(const fv_router *r);

/* Begins the shutdown: refuses new requests for FV_ROUTER_REFUSE_MS, with a hint to retry when the
 * listeners are closed; accepted ones continue. */
enum { FV_ROUTER_REFUSE_MS = 300 };
void fv_router_drain(fv_router *r);
/* Tells workers that the listeners are closed: they may join the next router at this address, and
 * continue to report here until running requests are finished. */
void fv_router_announce_end(fv_router *r);
bool fv_router_idle(const fv_router *r); /* no request is here, and no call to a worker is open */

/* Call when the server has stopped. Waits for open calls to workers, then frees `r` and calls `done`. */
void fv_router_close(fv_router *r, void (*done)(void *user), void *user);

#endif
