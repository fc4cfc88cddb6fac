#ifndef FOVEA_ROUTER_ROUTER_H
#define FOVEA_ROUTER_ROUTER_H

/* THE ROUTER: the Inference service for clients and the Fleet service for workers, and their
 * parts: registry.h (the workers), admit.h (is the request valid), deadline.h (in time), relay.h
 * (the queue), balancer.h and breaker.h (which workers), reservation.h (what is reserved on them),
 * generate.h (the client's call), merge.h (the report). Loop thread. */
#include "auth/mac.h"
#include "common/client_address.h"
#include "rpc/server.h"

typedef struct fv_router fv_router; /* opaque */

typedef struct fv_router_options {
    fv_key fleet;        /* of the fleet's secret, which workers prove */
    fv_tls *tls;         /* of the fleet's members: certificates identify them; NULL: tokens do */
    uint32_t renew_ms;   /* after which a worker joins again by a new connection; 0: never */
    const char *spiffe;  /* --tls-spiffe; with `tls`. Both borrowed */
    int32_t queue_max;   /* requests that wait */
    size_t queue_bytes;  /* of all that wait and run */
    const char *tenants; /* file of tenants (auth/tenants.h); borrowed; NULL: anybody may call */
    /* Whose x-forwarded-for says for whom they call; borrowed; NULL: nobody's. */
    const fv_trusted *trusted;
    int64_t unread_ms;   /* an answer that its client does not read for so long is ended */
    int64_t deadline_ms; /* for a request, when its client gives it no less */
    int64_t wait_ms;     /* for a worker, when there is none of its kind */
    int32_t replays;     /* how often another pair may take over a request */
    uint32_t report_ms;  /* workers report this often */
    uint32_t silence_ms; /* and are lost after so long without */
    /* and hang, when a request that they work on makes no progress for this time */
    int64_t stall_ms;
    /* Whether requests can be served now; said when it changes, at first not. */
    void (*on_serving)(void *user, bool serving);
    void *user;
} fv_router_options;

/* FV_EINVAL: the file of tenants is wrong. */
fv_status fv_router_open(fv_bridge *bridge, const fv_router_options *opt, fv_router **out);

fv_rpc_service fv_router_clients_service(fv_router *r); /* Inference */
/* Fleet, for a listener of its own: clients must not reach it. Its server stops after
 * the others, so that running requests keep their workers. */
fv_rpc_service fv_router_fleet_service(fv_router *r);

/* Sets the metrics that follow from its state. */
void fv_router_measure(const fv_router *r);

/* Shutdown begins: new requests are refused for FV_ROUTER_REFUSE_MS, and told to retry when
 * the listeners are closed; accepted ones go on. */
enum { FV_ROUTER_REFUSE_MS = 300 };
void fv_router_drain(fv_router *r);
/* Its listeners are closed: workers may join the next router at its address, and go on to report
 * here while requests are finished. */
void fv_router_farewell(fv_router *r);
bool fv_router_idle(const fv_router *r); /* no request is here, nor on its way to a worker */

/* When the server has stopped: waits for what is still on its way to workers, then frees `r` and
 * calls `done`. */
void fv_router_close(fv_router *r, void (*done)(void *user), void *user);

#endif
