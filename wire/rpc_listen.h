#ifndef FOVEA_WIRE_RPC_LISTEN_H
#define FOVEA_WIRE_RPC_LISTEN_H

/* Why an address cannot be listened on. gRPC says only that it cannot. */
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tries the address again, to learn the reason, and records it. Always a failure: FV_EINVAL when
 * it is no address, else FV_EIO. */
fv_status fv_rpc_listen_error(const char *address);

#ifdef __cplusplus
}
#endif
#endif
