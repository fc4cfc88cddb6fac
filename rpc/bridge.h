#ifndef FOVEA_RPC_BRIDGE_H
#define FOVEA_RPC_BRIDGE_H

/* BRIDGE between gRPC and a libuv loop: gRPC's completions become callbacks on the loop.
 *
 *   gRPC's threads --> completion queue --> [pump thread] --> inbox --> uv_async --> [loop thread]
 *                                                               ^
 *   any other thread (one that computes) ---- fv_bridge_post ---'
 *
 * gRPC core cannot be driven by a foreign event loop, so one thread waits at its completion queue
 * and posts every event. All RPC state then belongs to the loop thread: it needs no locks, and
 * batches on a call are started in order for free. The hop costs about 40 us.
 *
 * A program opens one bridge for its loop; servers and channels borrow it. */
#include <grpc/grpc.h>
#include <stdbool.h>
#include <uv.h>

#include "common/inbox.h"

/* A completion: a gRPC tag, or work that another thread posts. Embedded in the structure that waits
 * for it, which must not be freed or moved until `done` has run. */
typedef struct fv_rpc_op fv_rpc_op;
typedef void (*fv_rpc_done)(fv_rpc_op *op, bool ok); /* on the loop thread */

struct fv_rpc_op {
    fv_inbox_item item; /* private; first, so that an item is its op */
    fv_rpc_done done;
    void *owner; /* borrowed; for `done` */
    bool ok;     /* success according to gRPC, or the posted value */
};

typedef struct fv_bridge fv_bridge; /* opaque */

/* Starts gRPC and the completion queue's thread. The loop stays alive until the bridge is
 * closed. */
fv_status fv_bridge_open(uv_loop_t *loop, fv_bridge **out);

uv_loop_t *fv_bridge_loop(const fv_bridge *b);
grpc_completion_queue *fv_bridge_queue(const fv_bridge *b);

/* Runs op->done(op, ok) on the loop thread, soon. Any thread; the order of a thread's posts is
 * kept. Threads that post must be joined before the bridge is closed. */
void fv_bridge_post(fv_bridge *b, fv_rpc_op *op, bool ok);

/* Calls after(user) on the loop thread after each event that the bridge delivers, when its callbacks have returned;
 * NULL: no longer. One at a time. */
void fv_bridge_set_after_event(fv_bridge *b, void (*after)(void *user), void *user);

/* Closes the bridge, when all servers have stopped and all channels and calls are over. `closed` runs on
 * the loop thread after the last event was delivered; `b` is freed by then. */
void fv_bridge_close(fv_bridge *b, void (*closed)(void *user), void *user);

#endif
