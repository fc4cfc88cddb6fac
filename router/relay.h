#ifndef FOVEA_ROUTER_RELAY_H
#define FOVEA_ROUTER_RELAY_H

/* RELAY: the requests of all clients on their way through the fleet.
 *
 *     admitted --> QUEUED --- memory on a pair of workers ---> RUNNING --- answered ---> OVER
 *                    ^                                            |
 *                    '---- that attempt failed, or was refused ---'
 *                                  by a worker: another one follows
 *
 *     client gone, deadline, Abort, the request's own fault, too many replays, two workers lost
 *     with it: from any state to OVER; a queued request that would be too late (router/deadline.h)
 *     is ended before its deadline
 *
 * States
 *     QUEUED   holds nothing at any worker; the client may have tokens of earlier attempts
 *     RUNNING  has one attempt (router/attempt.c): the calls to its workers, and its reservations
 *     OVER     the client's call is finished, those to workers are cancelled or ended
 *
 * Requests of a tenant are served in order of arrival: the first one waits for memory, at a decode
 * worker that knows its age, and none overtakes it; a replayed request is older than those after it
 * and so the next. A request that waits for a slot of a decode worker (router/balancer.h) is
 * overtaken by tenants that have fewer slots than their share.
 *
 * Tenants, or client addresses if there are no tenants (router/sharers.h), share by their weights:
 * start-time fair queuing (Goyal, Vin, Cheng, SIGCOMM 1996, eq. 4-5). A new request gets a start tag S
 * and a finish tag F, and the smallest S is next:
 *
 *     S = max(v, F of the tenant's request before it),   F = S + work / weight
 *
 * where v, the virtual time, is the S of the request that started last, and the work is its expected
 * tokens. Each fleet (router/registry.h) has a queue of its own: a full fleet delays no other.
 * Requests that continue a conversation wait for its worker only, and delay no others.
 *
 * If the queue is full, the tenant that has most of it gives way to a new request of one that has
 * less. Loop thread. */
#include "router/registry.h"
#include "router/sharers.h"

typedef struct fv_relay fv_relay; /* all requests; opaque */

typedef struct fv_relay_options {
    const char *router_id; /* unique among routers; borrowed */
    fv_registry *members;  /* borrowed */
    fv_tenancy *tenancy;   /* borrowed */
    fv_sharers *sharers;   /* borrowed */
    int32_t queue_max;     /* waiting requests */
    size_t bytes_max;      /* of all requests' serialized messages together */
    int64_t deadline_ms;   /* default and maximum of a request */
    int64_t wait_ms;       /* how long to wait for a worker if a role has none */
    int64_t stall_ms;      /* a request without progress for this long: its worker hangs */
    int64_t unread_ms;     /* an answer that its client does not read for this long is ended */
    int32_t replays;       /* how many times another pair may take over a request */
    uint32_t
        max_tokens_default; /* of an answer, if the request has no max_tokens; 0: the rest of the context */
} fv_relay_options;

/* Limit of the events, in bytes, that wait for a slow client in its call's queue. When the queue is full, the
 * router stops reading the decode worker's call, and the answer pauses there. */
enum { FV_RELAY_QUEUE_BYTES = 16 << 10 };

fv_status fv_relay_open(const fv_relay_options *opt, fv_relay **out);
void fv_relay_close(fv_relay *r); /* all requests are over; NULL is fine */

/* Refuses new requests from now on, with a retry hint of again_ms; accepted ones continue. */
void fv_relay_drain(fv_relay *r, int32_t again_ms);

/* Starts queued requests as far as workers have room. */
void fv_relay_dispatch(fv_relay *r);

/* Ends requests that are too late or unread, replays hung ones, and dispatches, as waiting requests may be due. */
void fv_relay_tick(fv_relay *r);

/* Handles the loss of a worker: another one takes over its requests. */
void fv_relay_gone(fv_relay *relay, fv_registered_worker *w);

/* Takes note of a worker's progress on each request, from its report (router/watch.c). */
void fv_watch_report(fv_relay *r, fv_registered_worker *w,
                     const Fovea__Fleet__V1__WorkerReport *report);

/* Aborts a request. FV_ENOTFOUND if this tenant has no such request here, or its token differs: the
 * caller does not learn which. */
fv_status fv_relay_abort(fv_relay *r, const fv_tenant_use *tenant, const char *request_id,
                         const char *abort_token);

/* State of the queue, for GetFleet and logs. */
typedef struct fv_relay_counts {
    uint64_t n_refused; /* requests refused on arrival because of their deadlines */
    uint64_t n_expired; /* requests ended in the queue because of their deadlines */
    double queue_s;     /* expected wait of a new request, in the slowest fleet */
} fv_relay_counts;
fv_relay_counts fv_relay_count(const fv_relay *r);

int32_t fv_relay_queued(const fv_relay *r);
int32_t fv_relay_running(const fv_relay *r);
int32_t
fv_relay_alive(const fv_relay *r); /* requests and attempts whose calls have not all ended */

#endif
