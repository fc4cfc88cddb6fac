#ifndef FOVEA_TRANSPORT_GRPC_H
#define FOVEA_TRANSPORT_GRPC_H

/* HAND-OFFS OVER gRPC: the sending side of fovea.handoff.v1.Handoff, as a transport
 * (handoff/transport.h).
 *
 *   [computing thread]                        [loop thread]                      decode worker
 *   open    ----------------------------------> Handoff.Open  ----------------->   room?
 *        <-- job: on_reply(grant) ------------- <---------------- Grant, refusal
 *                                               Handoff.Push  -- alive, alive, ... -->
 *   push    -- frame, lent, not copied ------->               -- as it reads -->
 *   commit  ----------------------------------> the last message -------------->   all there?
 *        <-- job: on_reply(committed) --------- <------------ PushReply, refusal
 *   end     ----------------------------------> cancels and gives back, unless it is to be kept
 *        <-- job: gone ------------------------ when the network has let go of the last frame
 *
 * The computing thread drives a transport and its hand-offs: open, push, commit and end are called
 * there, and answers come there as jobs. None of them waits. The stream is opened by the loop
 * thread as soon as there is a grant, and says now and then that the sender is there: so the other
 * side learns of its death at once, and the lease goes on however long the computing thread is
 * busy. A decode worker that takes nothing for as long as a lease loses the hand-off.
 *
 * `gone` comes at once after a commit, else as soon as the loop thread has cancelled the call; when
 * the other machine has vanished in the middle of a frame, not before pings find it out (ping_ms,
 * twice). */
#include "common/jobs.h"
#include "handoff/transport.h"
#include "rpc/bridge.h"
#include "transport/peer_out.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_transport_grpc_options {
    fv_bridge *bridge;  /* borrowed */
    fv_jobs *jobs;      /* borrowed: the computing thread */
    const char *target; /* "HOST:PORT" of the decode worker; copied */
    int32_t open_ms;    /* for the answer to Open, beside what it may wait for room; 0: 10 s */
    int32_t ping_ms;    /* as in rpc/client.h */
    /* Pairs of devices, by which frames go beside the stream where the other side has one too;
     * borrowed; NULL: there are none. `jobs` is then the thread that computes on the device. */
    fv_peers *pairs;
} fv_transport_grpc_options;

/* Loop thread. A transport is one connection: one per decode worker serves any number of
 * hand-offs. It is closed on the loop thread too; `closed` never runs before that returns, and when
 * it has the bridge and the jobs may end. */
fv_status fv_transport_grpc(const fv_transport_grpc_options *opt, fv_transport **out);

#ifdef __cplusplus
}
#endif
#endif
