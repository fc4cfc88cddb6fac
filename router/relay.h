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
 *     with it: from any state to OVER; one that waits and would be too late (router/deadline.h)
 *     does not wait for that
 *
 * States
 *     QUEUED   holds nothing of any worker; the client may have tokens of earlier attempts
 *     RUNNING  has one attempt (router/attempt.c): the calls to its workers, and its reservations
 *     OVER     the client's call is finished, those to workers are cancelled or ended
 *
 * Requests of a tenant are served in order of arrival: the first one waits for memory, at a decode
 * worker that knows its age, and none overtakes it; one that was interrupted is older
 * than those after it, and so the next. One that waits for a slot of a decode worker (router/balancer.h) is
 * overtaken by those of tenants that have fewer slots than their share.
 *
 * Tenants, or addresses where there are none (router/sharers.h), share by their weights: start-time fair queuing
 * (Goyal, Vin, Cheng, SIGCOMM 1996, eq. 4-5). A request that comes gets a start tag S and a finish
 * tag F, and the smallest S is next:
 *
 *     S = max(v, F of the tenant's request before it),   F = S + work / weight
 *
 * where v, the virtual time, is the S of the request that started last, and the work is its expected
 * tokens. Each fleet (router/registry.h) has a queue of its own: one that is full delays no other.
 * Those that continue a conversation wait for its worker alone, and delay no others.
 *
 * A full queue belongs to all alike: who has most of it gives way to who comes with less. Loop thread. */
#include "router/registry.h"
#include "router/sharers.h"

typedef struct fv_relay fv_relay; /* all requests; opaque */

typedef struct fv_relay_options {
    const char *router_id; /* unlike any other router's; borrowed */
    fv_registry *members;  /* borrowed */
    fv_tenancy *tenancy;   /* borrowed */
    fv_sharers *sharers;   /* borrowed */
    int32_t queue_max;     /* requests that wait */
    size_t bytes_max;      /* of all requests together, as they came */
    int64_t deadline_ms;   /* for a request, when its client gives it no less */
    int64_t wait_ms;       /* for a worker, when there is none of its kind */
    int64_t stall_ms;      /* a request without progress for this time: its worker hangs */
    int64_t unread_ms;     /* an answer that its client does not read for so long is ended */
    int32_t replays;       /* how often another pair may take over, per request */
} fv_relay_options;

/* Bytes of events that wait for a client that reads slowly: the limit of its call's queue. When it is full, the
 * decode worker's call is read no more, and the answer pauses there. */
enum { FV_RELAY_QUEUE_BYTES = 64 << 10 };

fv_status fv_relay_open(const fv_relay_options *opt, fv_relay **out);
void fv_relay_close(fv_relay *r); /* all requests are over; NULL is fine */

/* From now on new requests are refused, with a retry hint of again_ms; accepted ones
 * go on. */
void fv_relay_drain(fv_relay *r, int32_t again_ms);

/* Starts queued requests, while workers have memory. */
void fv_relay_dispatch(fv_relay *r);

/* Ends those whose time is over, and dispatches: what was asked to wait may be due. */
void fv_relay_tick(fv_relay *r);

/* A worker is gone: another one takes over its requests. */
void fv_relay_gone(fv_relay *relay, fv_registered_worker *w);

/* What a worker reports of the requests that it works on (router/watch.c). */
void fv_watch_report(fv_relay *r, fv_registered_worker *w,
                     const Fovea__Fleet__V1__WorkerReport *report);

/* FV_ENOTFOUND when no such request of this tenant runs here, or its token differs: the caller does
 * not learn which. */
fv_status fv_relay_abort(fv_relay *r, const fv_tenant_use *tenant, const char *request_id,
                         const char *abort_token);

/* How the queue is, for those who look on. */
typedef struct fv_relay_counts {
    uint64_t n_refused; /* for their deadlines, when they came */
    uint64_t n_expired; /* for their deadlines, while they waited */
    double queue_s;     /* that a request would wait now */
} fv_relay_counts;
fv_relay_counts fv_relay_count(const fv_relay *r);

int32_t fv_relay_queued(const fv_relay *r);
int32_t fv_relay_running(const fv_relay *r);
int32_t
fv_relay_alive(const fv_relay *r); /* requests and attempts whose calls have not all ended */

#endif
