#ifndef FOVEA_RPC_LISTEN_H
#define FOVEA_RPC_LISTEN_H

/* LISTEN: checks addresses to listen on, and finds out why listening failed. gRPC replaces a missing port
 * by a default, and reports other faults without a reason. */
#include "common/status.h"

/* FV_EINVAL unless `address` is "HOST:PORT", "[HOST]:PORT" or "unix:PATH". */
fv_status fv_rpc_listen_check(const char *address);

/* Whether the address can be reached from this machine only. */
bool fv_rpc_listen_is_local(const char *address);

/* As fv_rpc_listen_check, for an address to connect to. */
fv_status fv_rpc_target_check(const char *address);

/* Gives a listening socket, for servers without gRPC, and the port that was bound. FV_EINVAL as above, or FV_EIO
 * with the reason. The caller owns *out. */
fv_status fv_rpc_listen_socket(const char *address, int *out, int *port);

/* Tries to listen at the address again, to learn the reason of gRPC's failure. Always returns a failure. */
fv_status fv_rpc_listen_error(const char *address);

#endif
