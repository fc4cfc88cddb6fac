#ifndef FOVEA_ROUTER_REPLAY_H
#define FOVEA_ROUTER_REPLAY_H

/* REPLAY: handles a failed attempt. Loop thread. */
#include "router/life.h"

/* Ends the request, or requeues it: to wait for memory, or to be tried again. */
void fv_request_failed(fv_request *r, const fv_failure *f);

#endif
