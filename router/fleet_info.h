#ifndef FOVEA_ROUTER_FLEET_INFO_H
#define FOVEA_ROUTER_FLEET_INFO_H

/* DESCRIBE: the answers to GetModel and GetFleet. Loop thread. */
#include "router/generate.h"

/* Answers a call and finishes it. FV_EIO when no prefill worker is there to say. */
fv_status fv_model_info(fv_rpc_call *c, const fv_registry *members);
fv_status fv_fleet_info(fv_rpc_call *c, const fv_registry *members, const fv_relay *relay,
                        double up_s);

#endif
