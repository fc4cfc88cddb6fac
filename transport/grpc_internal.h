#ifndef FOVEA_TRANSPORT_GRPC_INTERNAL_H
#define FOVEA_TRANSPORT_GRPC_INTERNAL_H

/* The sending side of a hand-off over gRPC. A transfer is shared by two threads, each with fields of
 * its own: the computing thread (grpc.c) makes frames that point into the store's memory and posts
 * them, the loop thread (grpc_loop.c) sends them as the call accepts them. Shared data is passed with
 * the posts.
 *
 *                 begin              Grant: Push opens              PushReply
 *   loop side:   ------> OPENING -----------------------> PUSHING --------------> OVER
 *                           |  refused, lost                 |  refused, lost       ^
 *                           |  end                           |  end, silence        |
 *                           '--------------------------------'------> Release ------'
 *
 * While PUSHING a timer fires a few times per lease: without anything to send, the sender
 * sends a keep-alive; if there is something and nothing is taken for a whole lease, the hand-off is
 * lost.
 *
 * References to a transfer: the computing side's until `gone` was called, the loop side's until then
 * and OVER, the timer's, and one for each pending reply. Loans of the sender's memory: one while more
 * frames may be posted (until `end` has reached the loop) and one for each frame that gRPC or the loop
 * still has; when the last is returned, the memory belongs to the sender again.
 *
 * The alternative, copying the KV, would avoid waiting for loans, but each hand-off would need its
 * size in memory twice. */
#include <stdatomic.h>

#include "transport/grpc.h"
#include "transport/out_of_band_internal.h"

typedef struct fv_grpc_transport {
    fv_transport base;
    fv_bridge *bridge;
    fv_jobs *jobs;
    fv_rpc_channel *channel;
    fv_peers *pairs;     /* borrowed; NULL: none */
    fv_peer_route *pair; /* owned; NULL: none */
    char *target;
    int32_t open_ms;
    int32_t live; /* loop: transfers that are not over */
    bool closing;
    fv_rpc_op gone; /* posted when nothing is live; leads to `closed` */
    void (*closed)(void *user);
    void *user;
} fv_grpc_transport;

typedef struct fv_grpc_transfer fv_grpc_transfer;

/* A frame, or the commit, on its way from the computing thread to the call. */
typedef struct fv_grpc_frame {
    fv_rpc_op op;
    fv_grpc_transfer *x;
    struct fv_grpc_frame *next;
    grpc_byte_buffer *message; /* owned */
    fv_oob_frame *oob;         /* owned; an out-of-band frame has no message until fv_oob_put */
    bool last;
} fv_grpc_frame;

/* An answer on its way to the computing thread. */
typedef struct fv_grpc_answer {
    fv_job job;
    fv_reply reply;
    fv_on_reply done;
    void *user;
    bool given; /* loop: the job is posted */
} fv_grpc_answer;

typedef enum fv_grpc_phase { OPENING = 0, PUSHING, OVER } fv_grpc_phase;

struct fv_grpc_transfer {
    fv_transfer base;
    fv_grpc_transport *way; /* borrowed */
    atomic_int refs;
    fv_hello hello;          /* borrows `policy` and `adapter` */
    fv_grant_request asking; /* borrows the other texts */
    char *policy, *request_id, *tenant, *adapter, *open_token, *pair_token;
    uint8_t *links;        /* [hello.n_link] as they are sent */
    uint64_t *names;       /* [hello.n_link] of the links */
    uint32_t n_name;       /* hello.n_link; 0: no link has one */
    uint32_t *ids;         /* [hello.n_tail] likewise */
    fv_peer_permit permit; /* borrows `pair_token` */
    fv_grpc_answer opened, closed;
    /* computing thread */
    bool ended;
    fv_ticket ticket;
    bool keep; /* with `end` */
    void (*gone)(void *user);
    void *gone_user;
    /* loop thread */
    fv_rpc_op begin, end, parted;
    fv_grpc_phase phase;
    bool end_came, is_parted, last_came, received, stalled, committed;
    fv_rpc_call *call; /* Open's, then Push's */
    fv_grant grant;
    fv_grpc_frame *first, **tail; /* frames that wait for the call */
    fv_oob_set oob;
    fv_peer_wait wait; /* for a peer link, after the grant */
    fv_reply broken;   /* why this side has cancelled the call, if its status is not FV_OK */
    uv_timer_t clock;
    uint64_t bytes_given, bytes_moved; /* given to the call; sent by it at the last tick */
    int32_t n_still;                   /* ticks in which nothing was sent */
    /* both threads */
    atomic_bool lost; /* set after `why`, which is then final */
    fv_reply why;
    atomic_int loans;
    fv_job returned; /* runs when the last loan is returned */
};

void fv_grpc_unref(fv_grpc_transfer *x);

/* Drops the reference of a transfer, or of the open transport; the last one closes it. Loop thread. */
void fv_grpc_way_unref(fv_grpc_transport *w);

/* Returns a loan: gRPC no longer uses a frame's bytes, or no more frames are posted. user: the transfer. Any thread. */
void fv_grpc_give_back(void *user);

/* Makes the reply for a failure on this side, with fv_last_error. */
fv_reply fv_grpc_own_failure(fv_status st);

/* Sets the loop's handlers of out-of-band frames; call it before posting the transfer. */
void fv_grpc_init_oob(fv_grpc_transfer *x);

/* Operations that the computing thread posts to the loop. Their owner is the transfer; of on_frame, the frame. */
void fv_grpc_on_begin(fv_rpc_op *op, bool ok);
void fv_grpc_on_frame(fv_rpc_op *op, bool ok);
void fv_grpc_on_ended(fv_rpc_op *op, bool ok);
void fv_grpc_on_memory_returned(fv_rpc_op *op, bool ok);

#endif
