#ifndef FOVEA_ROUTER_RELAY_H
#define FOVEA_ROUTER_RELAY_H

/* RELAY: the requests of all clients on their way through the fleet. router/request.h has the states of a
 * request, router/queue.h the order in which requests start.
 *
 * Events come from clients, workers and the timer. What an event does to a request is done at once; which
 * requests start next is decided once, when the event is over: fv_relay_end_event. Memory is freed there,
 * too, so no event frees what its caller still uses.
 *
 * The files, from top to bottom; each includes headers of those below it only:
 *
 *   relay.c         what happens to many requests at once: the timer, a lost worker, the end of an event
 *   generate.c      the client's call: brings a request, and hears when the client reads again or leaves
 *   dispatch.c      which request starts next, on which workers
 *   admission.c     whether a request is accepted, and by which fleet
 *   queue.c         waiting requests: their order, and who gives way when the queue is full
 *   watch.c         whether requests and workers make progress
 *   replay.c        what follows when a request's attempt has failed
 *   blame.c         whether a request causes the loss of workers
 *   answer.c        events to the client, and the tokens it has received
 *   life.c          the changes of a request's state
 *   attempt.c       an attempt at a request on two workers; reports through a table of callbacks
 *   worker_call.c   the calls to workers
 *   kept.c          which workers are thought to keep a beginning of a request's prompt
 *   request.c       the list of requests, and the table of their states
 *   failure.c       why an attempt failed, and what that calls for
 *
 * Loop thread. */
#include "router/relay_options.h"

fv_status fv_relay_open(const fv_relay_options *opt, fv_relay **out);
void fv_relay_close(fv_relay *r); /* all requests are over; NULL is fine */

/* Refuses new requests from now on, with a retry hint of again_ms; accepted ones continue. */
void fv_relay_drain(fv_relay *r, int32_t again_ms);

/* A worker has joined or reported: queued requests may start at the end of this event. */
void fv_relay_workers_changed(fv_relay *r);

/* Ends requests that are too late or unread, and replays hung ones; queued ones may start at the end of this
 * event. */
void fv_relay_tick(fv_relay *r);

/* Handles the loss of a worker: another one takes over its requests. */
void fv_relay_lose(fv_relay *relay, fv_registered_worker *w);

/* Aborts a request. FV_ENOTFOUND if this tenant has no such request here, or its token differs: the
 * caller does not learn which. */
fv_status fv_relay_abort(fv_relay *r, const fv_tenant_use *tenant, const char *request_id,
                         const char *abort_token);

/* Call after every event on the loop: starts queued requests as far as workers have room, if anything has
 * changed, and frees requests and attempts that are over. */
void fv_relay_end_event(fv_relay *r);

/* State of the queue, for GetFleet and metrics. */
typedef struct fv_relay_counts {
    int32_t n_queued, n_running;
    int32_t n_alive;    /* requests and attempts whose calls have not all ended */
    uint64_t n_refused; /* requests refused on arrival because of their deadlines */
    uint64_t n_expired; /* requests ended in the queue because of their deadlines */
    double queue_s;     /* expected wait of a new request, in the slowest fleet */
} fv_relay_counts;
fv_relay_counts fv_relay_count(const fv_relay *r);

#endif
