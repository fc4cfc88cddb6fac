#ifndef FOVEA_ROUTER_TRACE_H
#define FOVEA_ROUTER_TRACE_H

/* TRACE: the span Generate of a request. router/request.c adds its waits in the queue, router/attempt.c the
 * calls to workers. Loop thread. */
#include "router/request.h"

/* Begins the request's span when its call arrives. */
void fv_trace_begin(fv_request *r);
/* Ends the request's span when the answer is complete. */
void fv_trace_answer(fv_request *r, const Fovea__Inference__V1__Report *report);
/* Ends the request's span when the client's call is over; does nothing after fv_trace_answer. */
void fv_trace_end(const fv_request *r, const fv_rpc_end *end);

#endif
