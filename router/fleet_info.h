#ifndef FOVEA_ROUTER_FLEET_INFO_H
#define FOVEA_ROUTER_FLEET_INFO_H

/* FLEET INFO: the answers to GetModel, ListModels and GetFleet. Loop thread. */
#include "router/relay.h"

/* Answer a call and finish it. GetModel fails as fv_registry_choose_fleet does. */
/* max_tokens_default: as fv_relay_options'. */
fv_status fv_model_info(fv_rpc_call *c, grpc_byte_buffer *message, const fv_registry *members,
                        uint32_t max_tokens_default);
fv_status fv_models_info(fv_rpc_call *c, const fv_registry *members);
fv_status fv_fleet_info(fv_rpc_call *c, const fv_registry *members, const fv_relay *relay,
                        double up_s);

#endif
