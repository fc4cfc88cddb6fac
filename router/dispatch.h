#ifndef FOVEA_ROUTER_DISPATCH_H
#define FOVEA_ROUTER_DISPATCH_H

/* DISPATCH: starts queued requests as far as workers have room. Loop thread. */
#include "router/queue.h"

/* Goes through the queues of all fleets, each in order. Called at the end of an event only. */
void fv_dispatch(fv_relay *relay);

/* Ends a queued request that would be too late even on the fastest ready workers; returns whether it did. */
bool fv_dispatch_end_if_hopeless(fv_request *r, double now_s);

#endif
