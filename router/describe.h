#ifndef FOVEA_ROUTER_DESCRIBE_H
#define FOVEA_ROUTER_DESCRIBE_H

/* DESCRIBE: the answers to GetModel and GetFleet. Loop thread. */
#include "router/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Answers a call and finishes it. FV_EIO when no prefill worker is there to say. */
fv_status fv_describe_model(fv_rpc_call *c, const fv_members *members);
fv_status fv_describe_fleet(fv_rpc_call *c, const fv_members *members, const fv_relay *relay,
                            double up_s);

#ifdef __cplusplus
}
#endif
#endif
