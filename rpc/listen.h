#ifndef FOVEA_RPC_LISTEN_H
#define FOVEA_RPC_LISTEN_H

/* Addresses to listen on: whether one is written as it should be, and why one cannot be had. gRPC
 * takes a missing port for one of its own, and says of the rest only that it failed. */
#include "common/status.h"

/* FV_EINVAL unless it is "HOST:PORT", "[HOST]:PORT" or "unix:PATH". */
fv_status fv_rpc_listen_check(const char *address);

/* Can it be reached from this machine only? */
bool fv_rpc_listen_is_local(const char *address);

/* The same for an address to connect to. */
fv_status fv_rpc_target_check(const char *address);

/* A socket that listens there, for what is served without gRPC; *port is the one that was found.
 * FV_EINVAL as above, FV_EIO with the reason. The caller owns *fd. */
fv_status fv_rpc_listen_socket(const char *address, int *fd, int *port);

/* Tries the address again, to learn the reason, and records it. Always a failure. */
fv_status fv_rpc_listen_error(const char *address);

#endif
