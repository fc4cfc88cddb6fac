#ifndef FOVEA_RPC_CLIENT_H
#define FOVEA_RPC_CLIENT_H

/* CLIENT: channels to servers, and calls on them (rpc/call.h says how a call goes on).
 * Loop thread. */
#include "rpc/bridge.h"
#include "rpc/call.h"
#include "rpc/tls.h"

typedef struct fv_rpc_channel fv_rpc_channel; /* opaque */

typedef struct fv_rpc_channel_options {
    fv_tls *tls;             /* borrowed; NULL: plain text */
    const char *server_name; /* that its certificate must have; NULL: the target's. Copied */
    size_t message_max;      /* bytes of one message that comes in; 0: 4 MiB */
    int32_t ping_ms;         /* silence in a call after which the server is pinged; 0: 10 s */
} fv_rpc_channel_options;

/* The way to "HOST:PORT" (or "unix:PATH"). It connects when it is first used, and again when that
 * broke; a call on it fails with FV_EIO while it cannot. NULL options: all defaults. */
fv_status fv_rpc_channel_open(fv_bridge *bridge, const char *target,
                              const fv_rpc_channel_options *opt, fv_rpc_channel **out);

/* Its next call makes a new connection, with the certificates as they are then; calls that run stay
 * on the old one. It happens by itself when `tls` has changed. FV_ENOMEM: nothing has changed. */
fv_status fv_rpc_channel_renew(fv_rpc_channel *ch);

/* Calls that still run go on to their end. NULL is fine. */
void fv_rpc_channel_close(fv_rpc_channel *ch);

typedef struct fv_rpc_metadata {
    const char *key, *value;
} fv_rpc_metadata;

typedef struct fv_rpc_call_options {
    const char *path;                /* borrowed while the call lives */
    const fv_rpc_events *events;     /* likewise */
    void *user;                      /* fv_rpc_call_user */
    int64_t deadline_ms;             /* from now; every call has one */
    const ProtobufCMessage *request; /* the first message, or NULL */
    bool half_close;                 /* and the only one */
    /* The call for which this one is made, on the same bridge: its deadline applies here too,
     * and when it is cancelled or over, this one is cancelled (on_end comes then, after the
     * parent's). NULL: none. */
    fv_rpc_call *parent;
    const fv_rpc_metadata *metadata; /* [n_metadata], copied */
    int32_t n_metadata;
    /* The address of the client for whom it is made (common/client_address.h), as x-forwarded-for; copied;
     * NULL: none. */
    const char *forwarded_for;
    const fv_trace_context *trace; /* that the call belongs to, copied; NULL or {0}: none */
    size_t queue_max;              /* bytes that may wait to be sent; 0: 1 MiB */
} fv_rpc_call_options;

/* Starts a call. on_end comes in every case, also if the peer is unreachable, and never before this
 * returns. */
fv_status fv_rpc_call_open(fv_rpc_channel *ch, const fv_rpc_call_options *opt, fv_rpc_call **out);

/* One message there, one back. `reply` is NULL unless the end is FV_OK; both are borrowed for the
 * call. *out (or NULL) is for fv_rpc_call_cancel, until `done` runs, which it does once. */
typedef void (*fv_rpc_on_reply)(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                                grpc_byte_buffer *reply);
fv_status fv_rpc_unary(fv_rpc_channel *ch, const char *path, const ProtobufCMessage *request,
                       int64_t deadline_ms, fv_rpc_on_reply done, void *user, fv_rpc_call **out);
/* The same with what else the options say; its events, user and half_close are not looked at. */
fv_status fv_rpc_unary_with(fv_rpc_channel *ch, const fv_rpc_call_options *opt,
                            fv_rpc_on_reply done, void *user, fv_rpc_call **out);

#endif
