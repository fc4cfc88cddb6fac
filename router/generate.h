#ifndef FOVEA_ROUTER_GENERATE_H
#define FOVEA_ROUTER_GENERATE_H

/* GENERATE: one client's request on its way through the fleet.
 *
 *     on_message --> QUEUED --room--> PREFILL --first token--> DECODE --both halves--> OVER
 *                      ^                |  no room there after all, and       ^
 *                      '----------------'  nothing was said to the client     |
 *                                                                             |
 *     client gone, deadline, Abort, a worker failed or is lost: from anywhere '
 *
 * What holds in each state
 *     QUEUED   in the queue, holds nothing of any worker
 *     PREFILL  call to the prefill worker; room on both workers is noted in their members
 *     DECODE   and the call to the decode worker; the prefill worker's may have ended
 *     OVER     the client's call is finished, the others are cancelled or ended, nothing is noted
 *
 * Requests are served in the order in which they came: the first one waits for room, and none
 * overtakes it. Loop thread. */
#include "router/members.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_relay fv_relay; /* all requests; opaque */

typedef struct fv_relay_options {
    fv_members *members; /* borrowed */
    int32_t queue_max;   /* requests that wait */
    size_t bytes_max;    /* of all requests together, as they came */
    int64_t deadline_ms; /* of requests that have none of their own */
} fv_relay_options;

fv_status fv_relay_open(const fv_relay_options *opt, fv_relay **out);
void fv_relay_close(fv_relay *r); /* all requests are over; NULL is fine */

/* The handlers of Inference.Generate; the call's service is a struct whose first member is the
 * fv_relay pointer. */
extern const fv_rpc_events fv_generate_events;

/* Sends requests on their way, while there is room. */
void fv_relay_dispatch(fv_relay *r);

/* A worker is gone: requests on it fail. */
void fv_relay_gone(fv_relay *r, fv_member *member);

/* FV_ENOTFOUND when no such request runs. */
fv_status fv_relay_abort(fv_relay *r, const char *request_id);

int32_t fv_relay_queued(const fv_relay *r);
int32_t fv_relay_running(const fv_relay *r); /* PREFILL and DECODE */
int32_t fv_relay_alive(const fv_relay *r);   /* whose calls have not all ended */

#ifdef __cplusplus
}
#endif
#endif
