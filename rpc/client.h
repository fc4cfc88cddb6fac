#ifndef FOVEA_RPC_CLIENT_H
#define FOVEA_RPC_CLIENT_H

/* CLIENT: channels to servers, and calls on them (rpc/call.h has the rest of a call's life).
 * Loop thread. */
#include "rpc/bridge.h"
#include "rpc/call.h"
#include "rpc/tls.h"

typedef struct fv_rpc_channel fv_rpc_channel; /* opaque */

typedef struct fv_rpc_channel_options {
    fv_tls *tls;             /* borrowed; NULL: plain text */
    const char *server_name; /* required in the server's certificate; NULL: the target's. Copied */
    size_t message_max;      /* bytes of one received message; 0: 4 MiB */
    int32_t ping_ms;         /* silence in a call after which the server is pinged; 0: 10 s */
} fv_rpc_channel_options;

/* Opens a channel to "HOST:PORT" (or "unix:PATH"). It connects when it is first used, and again after the
 * connection breaks; calls fail with FV_EIO while it cannot. NULL options: all defaults. */
fv_status fv_rpc_channel_open(fv_bridge *bridge, const char *target,
                              const fv_rpc_channel_options *opt, fv_rpc_channel **out);

/* Makes the next call open a new connection, with the current certificates; running calls stay on
 * the old connection. Happens automatically when `tls` has changed. FV_ENOMEM: nothing has changed. */
fv_status fv_rpc_channel_renew(fv_rpc_channel *ch);

/* Closes the channel; running calls continue. NULL is fine. */
void fv_rpc_channel_close(fv_rpc_channel *ch);

typedef struct fv_rpc_metadata {
    const char *key, *value;
} fv_rpc_metadata;

typedef struct fv_rpc_call_options {
    const char *path;                /* borrowed while the call lives */
    const fv_rpc_events *events;     /* likewise */
    void *user;                      /* fv_rpc_call_user */
    int64_t deadline_ms;             /* from now; above 0 */
    const ProtobufCMessage *request; /* the first message, or NULL */
    bool half_close;                 /* no message follows the request */
    /* The call for which this one is made, on the same bridge: the parent's deadline applies here, too,
     * and when the parent is cancelled or over, this call is cancelled (its on_end comes after the
     * parent's). NULL: none. */
    fv_rpc_call *parent;
    const fv_rpc_metadata *metadata; /* [n_metadata], copied */
    int32_t n_metadata;
    /* The address of the client for whom the call is made (common/client_address.h), sent as x-forwarded-for;
     * copied; NULL: none. */
    const char *forwarded_for;
    const fv_trace_context *trace; /* the call's trace, copied; NULL or {0}: none */
    size_t queue_max;              /* bytes that may wait to be sent; 0: 1 MiB */
} fv_rpc_call_options;

/* Starts a call. If it succeeds, on_end comes in every case, also if the peer is unreachable, and never before
 * this returns. */
fv_status fv_rpc_call_open(fv_rpc_channel *ch, const fv_rpc_call_options *opt, fv_rpc_call **out);

/* Starts a unary call: one request, one reply. `done` runs once; its `reply` is NULL unless the end is FV_OK, and
 * both are borrowed for the callback. Until then *out (out may be NULL) may be passed to fv_rpc_call_cancel. */
typedef void (*fv_rpc_on_reply)(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                                grpc_byte_buffer *reply);
fv_status fv_rpc_unary(fv_rpc_channel *ch, const char *path, const ProtobufCMessage *request,
                       int64_t deadline_ms, fv_rpc_on_reply done, void *user, fv_rpc_call **out);
/* The same with options; their events, user and half_close are ignored. */
fv_status fv_rpc_unary_with(fv_rpc_channel *ch, const fv_rpc_call_options *opt,
                            fv_rpc_on_reply done, void *user, fv_rpc_call **out);

#endif
