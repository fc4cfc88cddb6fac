#ifndef FOVEA_RPC_HEALTH_H
#define FOVEA_RPC_HEALTH_H

/* HEALTH: grpc.health.v1 for one server. Programs set the state of their services; clients and
 * Kubernetes ask for it. Loop thread. */
#include "rpc/server.h"

typedef enum fv_health_state { FV_HEALTH_SERVING = 1, FV_HEALTH_NOT_SERVING = 2 } fv_health_state;

typedef struct fv_health fv_health; /* opaque */

fv_status fv_health_open(fv_health **out);
void fv_health_close(fv_health *h); /* its server has stopped; NULL is fine */

/* Sets the state of a service ("fovea.inference.v1.Inference") or of the whole server ("") and
 * notifies watchers. A service without a state is unknown to clients. */
fv_status fv_health_set(fv_health *h, const char *service, fv_health_state state);

/* Sets all known services to NOT_SERVING: the first step of draining. Stopping the server does this,
 * too. */
void fv_health_drain(fv_health *h);

fv_rpc_service fv_health_service(fv_health *h);

#endif
