#ifndef FOVEA_TRANSPORT_GRPC_INTERNAL_H
#define FOVEA_TRANSPORT_GRPC_INTERNAL_H

/* The sending side of a hand-off over gRPC. A transfer is shared by two threads, each with fields of
 * its own: the computing thread (grpc.c) makes frames that point into the store's memory and posts
 * them, the loop thread (grpc_loop.c) sends them as the call accepts them. Shared data travels with
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
 * References to a transfer: the computing side's until it was told that everything is `gone`, the
 * loop side's until then and OVER, the timer's, one for each reply on its way. Loans of the
 * sender's memory: one while more frames may be posted (until `end` has reached the loop) and one
 * for each frame that gRPC or the loop still has; with the last, the memory belongs to the sender
 * again.
 *
 * The alternative, copying the KV, would avoid waiting for loans, but each hand-off would need its
 * size in memory twice. */
#include <stdatomic.h>

#include "transport/grpc.h"
#include "transport/out_of_band_internal.h"

typedef struct fv_grpc_way {
    fv_transport base;
    fv_bridge *bridge;
    fv_jobs *jobs;
    fv_rpc_channel *channel;
    fv_peers *pairs;     /* borrowed; NULL: none */
    fv_peer_route *pair; /* NULL: likewise */
    char *target;
    int32_t open_ms;
    int32_t live; /* loop: transfers that are not over */
    bool closing;
    fv_rpc_op gone; /* says `closed` when nothing is live */
    void (*closed)(void *user);
    void *user;
} fv_grpc_way;

typedef struct fv_grpc_transfer fv_grpc_transfer;

/* A frame, or the commit, on its way from the computing thread to the call. */
typedef struct fv_grpc_frame {
    fv_rpc_op op;
    fv_grpc_transfer *x;
    struct fv_grpc_frame *next;
    grpc_byte_buffer *message; /* owned */
    fv_oob_frame *oob;         /* owned, instead: until it is put, it has no message */
    bool last;
} fv_grpc_frame;

/* An answer on its way to the computing thread. */
typedef struct fv_grpc_answer {
    fv_job job;
    fv_reply reply;
    fv_on_reply done;
    void *user;
    bool given; /* loop: posted */
} fv_grpc_answer;

typedef enum fv_grpc_phase { OPENING = 0, PUSHING, OVER } fv_grpc_phase;

struct fv_grpc_transfer {
    fv_transfer base;
    fv_grpc_way *way; /* borrowed */
    atomic_int refs;
    fv_hello hello;   /* its policy is `policy` */
    fv_asking asking; /* its texts are the next ones */
    char *policy, *request_id, *tenant, *open_token, *pair_token;
    fv_peer_permit permit; /* `pair_token` */
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
    fv_peer_wait wait; /* for a pair, with the grant in hand */
    fv_reply broken;   /* why this side has cancelled the call, when its status is not FV_OK */
    uv_timer_t clock;
    uint64_t bytes_given, bytes_moved; /* to the call; by it, at the last tick */
    int32_t n_still;                   /* ticks in which nothing moved */
    /* both */
    atomic_bool lost; /* why it failed is in `why` and changes no more */
    fv_reply why;
    atomic_int loans;
    fv_job returned; /* the last loan */
};

void fv_grpc_unref(fv_grpc_transfer *x);

/* One transfer less, or the way itself, which is closed when none is left. Loop. */
void fv_grpc_way_unref(fv_grpc_way *w);

/* A loan comes back: gRPC needs a frame's bytes no more, or no more frames are posted. user: the transfer. Any thread. */
void fv_grpc_give_back(void *user);

/* A failure of this side, with fv_last_error. */
fv_reply fv_grpc_own_failure(fv_status st);

/* Before the transfer is posted: what the loop does with frames that go beside the stream. */
void fv_grpc_init_oob(fv_grpc_transfer *x);

/* What the computing thread posts to the loop. Owner: the transfer; of the second the frame. */
void fv_grpc_on_begin(fv_rpc_op *op, bool ok);
void fv_grpc_on_frame(fv_rpc_op *op, bool ok);
void fv_grpc_on_ended(fv_rpc_op *op, bool ok);
void fv_grpc_on_parted(fv_rpc_op *op, bool ok);

#endif
