#ifndef FOVEA_RPC_CALL_H
#define FOVEA_RPC_CALL_H

/* CALL: one RPC on either side. rpc/server.h accepts calls, rpc/client.h makes calls; the common part
 * is here.
 *
 * The handler of a call provides a const table of callbacks and a pointer of its own. Everything
 * runs on the loop thread, including every function of this file. A call may be used from on_start
 * (or from when it was opened) until on_end, which comes once and last.
 *
 *   server   on_start, on_message 0..n, on_half_close     on_cancel, if the client goes away first
 *            ... fv_rpc_call_send 0..n, fv_rpc_call_finish ...                          ... on_end
 *   client   ... fv_rpc_call_send 0..n, fv_rpc_call_close_send ...
 *            on_message 0..n                                                            ... on_end
 *
 * Back-pressure. Sending: messages wait in a queue of bounded bytes; a full one returns FV_EBUSY,
 * and on_writable is called when there is space again. Receiving: the next message is requested
 * when on_message has returned; fv_rpc_call_pause delays that, and the peer's own queue fills. */
#include <grpc/byte_buffer.h>
#include <protobuf-c/protobuf-c.h>

#include "common/arena.h"
#include "common/trace_context.h"
#include "rpc/status.h"

typedef struct fv_rpc_call fv_rpc_call;

/* Callbacks of a call; any may be NULL. A failure that a callback returns ends the call: on the server
 * it is sent as the status, with fv_last_error as its sentence; on the client the call is cancelled and
 * ends with that failure. */
typedef struct fv_rpc_events {
    fv_status (*on_start)(fv_rpc_call *call);                              /* server only */
    fv_status (*on_message)(fv_rpc_call *call, grpc_byte_buffer *message); /* borrowed */
    /* The peer has closed its side properly and sends nothing more. On the server: not called for
     * methods that take one message. On the client: the status follows. */
    fv_status (*on_half_close)(fv_rpc_call *call);
    void (*on_writable)(fv_rpc_call *call); /* the queue was full and is half empty now */
    /* Server only: the client cancelled or disconnected, or the deadline passed, before the call
     * was finished. The call finishes by itself; stop the work for it. */
    void (*on_cancel)(fv_rpc_call *call);
    /* The call is over, and gone when this returns. On the server, `end` says how it ended for the
     * client. */
    void (*on_end)(fv_rpc_call *call, const fv_rpc_end *end);
} fv_rpc_events;

/* ---- properties ------------------------------------------------------------------------- */

void *fv_rpc_call_user(const fv_rpc_call *c); /* the handler's own pointer; at first NULL */
void fv_rpc_call_set_user(fv_rpc_call *c, void *user);

const char *fv_rpc_call_path(const fv_rpc_call *c); /* "/package.Service/Method" */

/* Milliseconds until the call's deadline, not below 0; INT64_MAX: it has none. */
int64_t fv_rpc_call_left_ms(const fv_rpc_call *c);

/* Memory that lives as long as the call. */
fv_arena *fv_rpc_call_arena(fv_rpc_call *c);

/* The peer's address ("ipv4:127.0.0.1:50051"): for logs and for sharing, because it identifies nobody. */
const char *fv_rpc_call_peer(fv_rpc_call *c);

/* Whether the peer's verified certificate has this DNS name, or this SPIFFE id. False over plain
 * text. */
bool fv_rpc_call_peer_named(const fv_rpc_call *c, const char *dns_name);
bool fv_rpc_call_peer_spiffe(const fv_rpc_call *c, const char *id);

/* Metadata that the peer sent under `key` (lower case): on the server with the request, on the
 * client, in on_end, with the status. Not terminated; borrowed from the call. */
bool fv_rpc_call_metadata(const fv_rpc_call *c, const char *key, const char **value, size_t *n);

/* All values that the peer sent under `key`, in order and separated by ", ". If they do not fit, the end of them,
 * beginning after a comma. False: no value. */
bool fv_rpc_call_metadata_joined(const fv_rpc_call *c, const char *key, char *out, size_t size);

/* The trace to which the call belongs according to the caller; {0}: none, or not valid. Server only. */
fv_trace_context fv_rpc_call_trace(const fv_rpc_call *c);

/* ---- messages --------------------------------------------------------------------------- */

/* Unpacks a message; *out is valid until on_message returns. An invalid message is FV_EINVAL on a server (the
 * client's mistake) and FV_EDATA on a client. */
fv_status fv_rpc_call_unpack(fv_rpc_call *c, const ProtobufCMessageDescriptor *d,
                             grpc_byte_buffer *message, ProtobufCMessage **out);

/* Queues a message. FV_EBUSY: the queue is full; wait for on_writable. FV_ECANCELLED: the call is
 * over, or this side has closed its direction. */
fv_status fv_rpc_call_send(fv_rpc_call *c, const ProtobufCMessage *m);
/* Takes the buffer, also when it fails. */
fv_status fv_rpc_call_send_buffer(fv_rpc_call *c, grpc_byte_buffer *b);

bool fv_rpc_call_writable(const fv_rpc_call *c);       /* a message would be queued now */
size_t fv_rpc_call_bytes_queued(const fv_rpc_call *c); /* not yet taken by the network */
uint64_t fv_rpc_call_sent(const fv_rpc_call *c);       /* messages taken by the network so far */

/* Stops and restarts on_message; a read that is under way still calls it once. While
 * messages wait, the call's end is not reported either, except for cancellation and deadline. */
void fv_rpc_call_pause(fv_rpc_call *c);
void fv_rpc_call_resume(fv_rpc_call *c);

/* ---- ending: server --------------------------------------------------------------------- */

/* Ends the call: sends the queued messages, then the status; for a failure with fv_last_error as
 * its sentence. Only the first finish counts. Afterwards the call may only be used in on_end,
 * which comes later. */
void fv_rpc_call_finish(fv_rpc_call *c, fv_status st);

/* Ends the call at once, whether it was finished or not: drops queued messages that the network has not taken.
 * For a client that does not read. */
void fv_rpc_call_abort(fv_rpc_call *c, fv_status st);

/* Sets the retry hint of FV_EBUSY; default: FV_RPC_RETRY_MS. Before finish. */
void fv_rpc_call_retry_after(fv_rpc_call *c, int64_t ms);

/* Adds metadata to the status. Copied; before finish; at most FV_RPC_TRAILERS. */
enum { FV_RPC_TRAILERS = 4 };
void fv_rpc_call_trailer(fv_rpc_call *c, const char *key, const char *value);

/* The state of the service that the method belongs to. */
void *fv_rpc_call_service(const fv_rpc_call *c);

/* ---- ending: client --------------------------------------------------------------------- */

void fv_rpc_call_close_send(fv_rpc_call *c); /* closes this side after the queued messages */
void fv_rpc_call_cancel(fv_rpc_call *c);     /* at any time; on_end comes with FV_ECANCELLED */

#endif
