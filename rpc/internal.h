#ifndef FOVEA_RPC_INTERNAL_H
#define FOVEA_RPC_INTERNAL_H

/* Shared by call.c, server.c and client.c only.
 *
 * A call is a small state machine with two nearly independent directions:
 *
 *   out   IDLE --message or end queued--> SENDING --sent--> IDLE ... --the end was sent--> CLOSED
 *   in    READING --message--> (handler) --> READING ... --no more--> DONE;  PAUSED between
 *
 * Invariants
 * (1) Every op in flight holds one reference, and so does the call while it is open: on the server
 *     until it was finished, on the client until its status came. At zero references on_end runs.
 * (2) At most one send and one read are in flight: gRPC allows no more.
 * (3) Initial metadata is sent once, with the first batch that sends; the end of the direction
 *     (status or half-close) is sent once, from send_next, with the last message if there is one.
 * (4) Everything runs on the loop thread, so batches on a call are started one after the other. */
#include <grpc/grpc.h>

#include "rpc/bridge.h"
#include "rpc/call.h"

/* The differences between the two sides. */
typedef struct fv_rpc_side {
    bool server;
    void (*fill_headers)(fv_rpc_call *c, grpc_op *op); /* the initial metadata */
    void (*fill_end)(fv_rpc_call *c, grpc_op *op);     /* the end of this side's direction */
    /* A handler or a message failed; the sentence is in fv_last_error. */
    void (*fail)(fv_rpc_call *c, fv_status st);
    void (*message_came)(fv_rpc_call *c); /* complete, before its delivery. May be NULL */
    /* The peer's last message was read, and the stream ended properly. */
    void (*read_done)(fv_rpc_call *c);
    void (*over)(fv_rpc_call *c); /* no reference is left: runs on_end and frees the call */
} fv_rpc_side;

typedef struct fv_rpc_queued {
    struct fv_rpc_queued *next;
    grpc_byte_buffer *message; /* owned */
    size_t bytes;
} fv_rpc_queued;

struct fv_rpc_call {
    const fv_rpc_side *side;
    const fv_rpc_events *events; /* borrowed */
    fv_bridge *bridge;           /* borrowed */
    grpc_call *rpc;              /* owned */
    int32_t refs;
    /* A call that was made on behalf of another ends with it. */
    fv_rpc_call *parent, *first_child, *sibling;
    bool cancelled; /* by this side */
    void *user;
    const char *path; /* borrowed */
    char *peer;       /* owned by gRPC's allocator; NULL until asked for */
    gpr_timespec deadline;
    grpc_metadata_array metadata; /* of the peer */
    fv_arena arena, scratch;

    fv_rpc_op send;
    fv_rpc_queued *out_first, **out_tail;
    grpc_byte_buffer *sending; /* owned, while a batch with a message is in flight */
    size_t bytes_sending, bytes_queued, queue_max;
    uint64_t n_sent;
    bool in_send, headers_sent, stalled;
    bool closing; /* nothing more will be queued */
    bool closed;  /* the end is being sent, or the peer is gone */

    fv_rpc_op read;
    grpc_byte_buffer *incoming;
    size_t message_max;
    bool in_read, paused, read_done;
    bool one_message; /* the peer sends exactly one message */
};

/* Initializes a call with one reference. */
void fv_rpc_call_init(fv_rpc_call *c, const fv_rpc_side *side, fv_bridge *bridge,
                      const fv_rpc_events *events, size_t queue_max, size_t message_max);
/* Frees what the call owns, not the call. */
void fv_rpc_call_fini(fv_rpc_call *c);

/* Starts a batch that completes with op->done, and holds a reference until then. */
void fv_rpc_call_start(fv_rpc_call *c, const grpc_op *ops, size_t n, fv_rpc_op *op,
                       fv_rpc_done done);
void fv_rpc_call_unref(fv_rpc_call *c);

void fv_rpc_call_read_next(fv_rpc_call *c); /* unless a read is in flight, paused or over */
void fv_rpc_call_send_next(fv_rpc_call *c); /* if there is something to send */

/* Makes `child` be cancelled when its parent ends, unless it ends before. */
void fv_rpc_call_adopt(fv_rpc_call *parent, fv_rpc_call *child);

/* Drops the queue and sends nothing more, because the peer is gone. */
void fv_rpc_call_drop_queue(fv_rpc_call *c);

/* Queues a message without starting to send. Takes it, also on failure. */
fv_status fv_rpc_call_queue(fv_rpc_call *c, grpc_byte_buffer *b);

#endif
