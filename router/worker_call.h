#ifndef FOVEA_ROUTER_WORKER_CALL_H
#define FOVEA_ROUTER_WORKER_CALL_H

/* WORKER CALL: a call to a worker on behalf of a request's client, until a little after the request's deadline.
 * Loop thread. */
#include "handoff.pb-c.h"
#include "router/request.h"

typedef Fovea__Handoff__V1__Ticket fv_ticket_message;

typedef struct fv_worker_call {
    fv_rpc_call *rpc; /* borrowed; NULL: not begun, or over */
    fv_span span;
} fv_worker_call;

/* Calls Prefill at p, which hands the KV off to d (NULL: the first token is the whole answer). The tokens that
 * the client has are replayed. */
fv_status fv_worker_call_prefill(fv_worker_call *c, const fv_request *r,
                                 const fv_registered_worker *p, const fv_registered_worker *d,
                                 const fv_rpc_events *events, void *user);

/* The hand-off as the prefill worker has announced it. */
typedef struct fv_handed_off {
    const fv_ticket_message *ticket; /* NULL: there is none, a conversation continues */
    uint32_t n_replay;               /* tokens that were replayed */
    bool thinks, thought;            /* where the prompt ends: Begun.thinks, Begun.thought */
} fv_handed_off;

/* Calls Decode at d for a hand-off, or for the conversation that d keeps. */
fv_status fv_worker_call_decode(fv_worker_call *c, const fv_request *r,
                                const fv_registered_worker *d, const fv_handed_off *from,
                                const fv_rpc_events *events, void *user);

/* The call is over: ends its span, with the name of its worker. */
void fv_worker_call_ended(fv_worker_call *c, const char *worker, const fv_rpc_end *end);

#endif
