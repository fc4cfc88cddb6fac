#ifndef FOVEA_ROUTER_GENERATE_H
#define FOVEA_ROUTER_GENERATE_H

/* GENERATE: a client's call, from its request to the last event. Loop thread. */
#include "router/relay_options.h"

/* The handlers of Inference.Generate; the call's service is a struct whose first member is the
 * fv_relay pointer. */
extern const fv_rpc_events fv_generate_events;

/* Checks whether a request of this tenant would be admitted now, as far as that depends on the caller and the
 * queue; counts nothing. */
fv_status fv_generate_check(fv_relay *relay, fv_rpc_call *c, fv_tenant_use *tenant);

#endif
