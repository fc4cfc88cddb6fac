#ifndef FOVEA_WIRE_TRANSPORT_GRPC_H
#define FOVEA_WIRE_TRANSPORT_GRPC_H

/* HAND-OFFS OVER gRPC: the sending side of fovea.handoff.v1.Handoff, as a transport
 * (wire/transport.h).
 *
 *   [computing thread]                        [loop thread]                      decode worker
 *   open    ----------------------------------> Handoff.Open  ----------------->   room?
 *        <-- job: on_reply(grant) ------------- <---------------- Grant, refusal
 *   push    -- frame, lent, not copied -------> Handoff.Push  -- as it reads -->
 *   commit  ----------------------------------> the last message -------------->   all there?
 *        <-- job: on_reply(committed) --------- <------------ PushReply, refusal
 *   end     ----------------------------------> cancels, or gives the grant back
 *
 * The computing thread drives a transport and its hand-offs: open, push, commit and end are called
 * there, and answers come there as jobs. None of them waits, but `end`: it returns when the network
 * has let go of the sender's memory. After a commit that is at once, else as soon as the loop
 * thread has cancelled the call; when the other machine has vanished in the middle of a frame, not
 * before pings find it out (ping_ms, twice). So the loop thread must not wait for the computing
 * thread while a hand-off is under way. */
#include "common/jobs.h"
#include "wire/bridge.h"
#include "wire/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_transport_grpc_options {
    fv_bridge *bridge;  /* borrowed */
    fv_jobs *jobs;      /* borrowed: the computing thread */
    const char *target; /* "HOST:PORT" of the decode worker; copied */
    int32_t open_ms;    /* for the answer to Open; 0: 10 s */
    int32_t ping_ms;    /* as in wire/rpc_client.h */
} fv_transport_grpc_options;

/* Loop thread. A transport is one connection: one per decode worker serves any number of
 * hand-offs. */
fv_status fv_transport_grpc(const fv_transport_grpc_options *opt, fv_transport **out);

/* Loop thread, when all its hand-offs have ended: instead of fv_transport_close, for those who want
 * to know when nothing of it is under way any more (the bridge and the jobs may end then). `closed`
 * never runs before this returns. */
void fv_transport_grpc_close(fv_transport *t, void (*closed)(void *user), void *user);

#ifdef __cplusplus
}
#endif
#endif
