#ifndef FOVEA_TRANSPORT_GRPC_H
#define FOVEA_TRANSPORT_GRPC_H

/* HAND-OFFS OVER gRPC: the sending side of fovea.handoff.v1.Handoff, as a transport
 * (handoff/transport.h).
 *
 *   [computing thread]                        [loop thread]                      decode worker
 *   open    ----------------------------------> Handoff.Open  ----------------->   memory?
 *        <-- job: on_reply(grant) ------------- <---------------- Grant, refusal
 *                                               Handoff.Push  -- alive, alive, ... -->
 *   push    -- frame, borrowed, not copied --->               -- as it reads -->
 *   commit  ----------------------------------> the last message -------------->   complete?
 *        <-- job: on_reply(committed) --------- <------------ PushReply, refusal
 *   end     ----------------------------------> cancels and frees, unless kept
 *        <-- job: gone ------------------------ when the network has released the last frame
 *
 * The computing thread drives a transport and its hand-offs: open, push, commit and end are called
 * there, and replies arrive there as jobs. Nothing blocks. The loop thread opens the stream as soon
 * as there is a grant, and sends keep-alives: so the other side notices a lost sender at once, and
 * the lease is renewed however long the computing thread is busy. If a decode worker takes no frame for
 * the time of a lease, the hand-off is lost.
 *
 * `gone` comes at once after a commit, otherwise after the loop thread has cancelled the call; if the
 * other machine vanishes in the middle of a frame, only after pings detect it (ping_ms, twice). */
#include "common/jobs.h"
#include "handoff/transport.h"
#include "rpc/bridge.h"
#include "rpc/tls.h"
#include "transport/peer_out.h"

typedef struct fv_transport_grpc_options {
    fv_bridge *bridge;  /* borrowed */
    fv_jobs *jobs;      /* borrowed: the computing thread */
    const char *target; /* "HOST:PORT" of the decode worker; copied */
    int32_t open_ms;    /* timeout of the reply to Open, on top of the wait for memory; 0: 10 s */
    int32_t ping_ms;    /* as in rpc/client.h */
    fv_tls *tls;        /* borrowed; NULL: plain text */
    /* Peer links, for sending frames out of band if the other side supports it; borrowed; NULL: none. With
     * them `jobs` must be the thread that computes on the device. */
    fv_peers *pairs;
} fv_transport_grpc_options;

/* Opens a transport, on the loop thread: one connection, which serves any number of hand-offs to a decode
 * worker. Close it on the loop thread too; `closed` never runs before close returns, and after it the
 * bridge and the jobs may end. */
fv_status fv_transport_grpc(const fv_transport_grpc_options *opt, fv_transport **out);

#endif
