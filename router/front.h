#ifndef FOVEA_ROUTER_FRONT_H
#define FOVEA_ROUTER_FRONT_H

/* FRONT: how the router's memory is divided, and what the server for clients grants each of them.
 * Clients may be anybody, so everything that they can make grow has a bound here:
 *
 *   a connection    FV_FRONT_STREAMS calls at a time, FV_FRONT_METADATA bytes of metadata for each
 *   all of them     a quarter of the memory for what gRPC holds, partial messages among it
 *   all requests    a quarter for complete requests, while they wait and run: each is held
 *                   twice while it is sent to a worker
 *   a call          first_message_ms until its request is complete
 *
 * SECURITY.md says which attacks this does not stop. Pure functions. */
#include "rpc/server.h"

enum { FV_FRONT_STREAMS = 128, FV_FRONT_METADATA = 16 << 10 };

/* Returns the memory of this process. memory_bytes: from the options; 0: that of the control group or machine. */
size_t fv_front_memory(size_t memory_bytes);

/* Gives the limit of all requests' bytes. queue_bytes: from the options; 0: a quarter of the memory. FV_EINVAL if
 * it is more than half of the memory: the rest is needed for other things. */
fv_status fv_front_queue_bytes(size_t memory, size_t queue_bytes, size_t *out);

fv_rpc_limits fv_front_limits(size_t memory, int32_t first_message_ms);

#endif
