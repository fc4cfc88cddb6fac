#ifndef FOVEA_ROUTER_GENERATE_H
#define FOVEA_ROUTER_GENERATE_H

/* GENERATE: a client's call, from its request to the last event. Loop thread. */
#include "router/relay.h"

/* The handlers of Inference.Generate; the call's service is a struct whose first member is the
 * fv_relay pointer. */
extern const fv_rpc_events fv_generate_events;

#endif
