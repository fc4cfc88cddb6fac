#ifndef FOVEA_ROUTER_LIFE_H
#define FOVEA_ROUTER_LIFE_H

/* LIFE: the changes of a request's state (the diagram is in router/request.h). None of them frees anything or
 * starts another request; that follows when the event is over. Loop thread. */
#include "router/attempt.h"

/* NEW -> QUEUED. */
void fv_request_enqueue(fv_request *r);

/* QUEUED -> RUNNING: starts an attempt with a prefill at p, and d to decode, NULL for an answer of one token;
 * without p, one that continues the conversation kept at d. Ends the request if that fails. */
void fv_request_start(fv_request *r, const fv_attempt_events *events, fv_registered_worker *p,
                      fv_registered_worker *d);

/* RUNNING -> QUEUED: gives its attempt up. */
void fv_request_requeue(fv_request *r);

/* To OVER, without a word to the client: gives its attempt up. Calling it again is fine. */
void fv_request_end(fv_request *r);

/* Finishes the client's call, with fv_last_error if st is a failure, and ends the request. Does nothing if it is
 * not active. */
void fv_request_finish(fv_request *r, fv_status st);

/* The client's call has ended: ends the request, which is freed when the event is over. */
void fv_request_close(fv_request *r);

#endif
