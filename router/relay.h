#ifndef FOVEA_ROUTER_RELAY_H
#define FOVEA_ROUTER_RELAY_H

/* RELAY: the requests of all clients on their way through the fleet.
 *
 *     right and wanted --> QUEUED --- room on a pair of workers ---> RUNNING --- answered ---> OVER
 *                            ^                                          |
 *                            '---- that attempt failed, or found no ----'
 *                                  room after all: another one follows
 *
 *     client gone, deadline, Abort, the request's own fault, too many replays, two workers lost
 *     over it: from anywhere to OVER; one that waits and would be too late (router/deadline.h) does
 *     not wait for that
 *
 * What holds in each state
 *     QUEUED   holds nothing of any worker; the client may have tokens of earlier attempts
 *     RUNNING  has one attempt (router/attempt.c): the calls to its workers, and room noted there
 *     OVER     the client's call is finished, those to workers are cancelled or ended
 *
 * Requests are served in the order in which they came: the first one waits for room, at a decode
 * worker where it is known how old it is, and none overtakes it; one that was broken off is older
 * than those behind it, and so the next. Those that
 * go on with a conversation wait for its worker alone, and for nobody else. Loop thread. */
#include "router/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_relay fv_relay; /* all requests; opaque */

typedef struct fv_relay_options {
    const char *router_id; /* unlike any other router's; borrowed */
    fv_registry *members;  /* borrowed */
    int32_t queue_max;     /* requests that wait */
    size_t bytes_max;      /* of all requests together, as they came */
    int64_t deadline_ms;   /* for a request, when its client gives it no less */
    int64_t wait_ms;       /* for a worker, when there is none of its kind */
    int64_t stall_ms;      /* a request stands still for so long: its worker hangs */
    int32_t replays;       /* how often another pair may take over, per request */
} fv_relay_options;

/* Bytes of events that wait for a client that reads slowly: the limit of its call's queue. */
enum { FV_RELAY_QUEUE_BYTES = 256 << 10 };

fv_status fv_relay_open(const fv_relay_options *opt, fv_relay **out);
void fv_relay_close(fv_relay *r); /* all requests are over; NULL is fine */

/* From now on new requests are sent away, and told to come again after again_ms; those that are
 * here go on. */
void fv_relay_drain(fv_relay *r, int32_t again_ms);

/* Sends requests on their way, while there is room. */
void fv_relay_dispatch(fv_relay *r);

/* Ends those whose time is over, and dispatches: what was asked to wait may be due. */
void fv_relay_tick(fv_relay *r);

/* A worker is gone: another one takes over its requests. */
void fv_relay_gone(fv_relay *relay, fv_registered_worker *w);

/* What a worker reports of the requests that it works on (router/watch.c). */
void fv_watch_report(fv_relay *r, fv_registered_worker *w,
                     const Fovea__Fleet__V1__WorkerReport *report);

/* FV_ENOTFOUND when no such request runs here, or its token is another one: who asks learns nothing
 * of which it was. */
fv_status fv_relay_abort(fv_relay *r, const char *request_id, const char *abort_token);

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

#ifdef __cplusplus
}
#endif
#endif
