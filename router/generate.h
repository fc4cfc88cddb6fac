#ifndef FOVEA_ROUTER_GENERATE_H
#define FOVEA_ROUTER_GENERATE_H

/* GENERATE: a client's call, from its request to the last event. Loop thread. */
#include "router/relay.h"

/* The handlers of Inference.Generate; the call's service is a struct whose first member is the
 * fv_relay pointer. */
extern const fv_rpc_events fv_generate_events;

/* Would a request of this tenant be let in now, as far as its call alone tells? Takes nothing. */
fv_status fv_generate_check(fv_relay *relay, fv_rpc_call *c, fv_tenant_use *tenant);

#endif
