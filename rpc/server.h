#ifndef FOVEA_RPC_SERVER_H
#define FOVEA_RPC_SERVER_H

/* SERVER: methods in a const table, calls as callbacks on the loop (rpc/call.h).
 *
 *     static const fv_rpc_method methods[] = {
 *         {.path = "/fovea.handoff.v1.Handoff/Open", .kind = FV_RPC_UNARY,
 *          .message_max = 64 << 10, .events = {.on_message = open_grant}},
 *         ...
 *     };
 *     fv_rpc_service service = {methods, sizeof methods / sizeof methods[0], worker, NULL};
 *
 * What the server does by itself: unknown methods are UNIMPLEMENTED, messages over a method's limit
 * and calls over its number are RESOURCE_EXHAUSTED, a call whose client has gone or whose deadline
 * has passed is finished. Messages must not be compressed (UNIMPLEMENTED): gRPC would inflate them
 * before it looks at their size. */
#include "rpc/bridge.h"
#include "rpc/call.h"
#include "rpc/tls.h"

/* What goes in, what comes out. */
typedef enum fv_rpc_kind {
    FV_RPC_UNARY = 0,     /* one message, one message */
    FV_RPC_SERVER_STREAM, /* one, many */
    FV_RPC_CLIENT_STREAM, /* many, one */
    FV_RPC_BIDI,          /* many, many */
} fv_rpc_kind;

typedef struct fv_rpc_method {
    const char *path;
    fv_rpc_kind kind;
    int32_t calls_max;  /* at a time; more are sent away with FV_EBUSY; 0: any number */
    size_t message_max; /* bytes of one message that comes in; 0: 4 MiB */
    size_t queue_max;   /* bytes that may wait to be sent; 0: 1 MiB */
    uint32_t peers;     /* who may call it: for the server's `admit` */
    fv_rpc_events events;
} fv_rpc_method;

typedef struct fv_rpc_service {
    const fv_rpc_method *methods; /* [n_method], borrowed */
    int32_t n_method;
    void *state; /* fv_rpc_call_service; borrowed */
    /* The server begins to stop: finish calls that would last for ever. May be NULL. */
    void (*on_stop)(void *state);
} fv_rpc_service;

/* What one server grants its peers. A server for strangers needs all of it; between members of a
 * fleet, where one connection carries everything, the zeros are right. */
typedef struct fv_rpc_limits {
    int32_t streams; /* calls of one connection at a time; 0: any number */
    size_t metadata; /* bytes of metadata of one call, names included; 0: gRPC's 8 KiB */
    /* Bytes that gRPC may hold for all connections of this server, partial messages among it. Where
     * they are used up, it closes connections, innocent ones too. 0: any number. */
    size_t memory;
    /* A call whose first message is not complete after so long is DEADLINE_EXCEEDED; 0: it may take
     * as long as the call. */
    int32_t first_message_ms;
    /* After this time a connection takes no new calls: the peer makes another one and shows its
     * certificate again. Calls that run have as long again to end; 0: connections do not age. */
    int32_t age_ms;
} fv_rpc_limits;

typedef struct fv_rpc_server_options {
    const char *listen; /* "HOST:PORT" (port 0: any that is free), "unix:PATH" */
    const fv_rpc_service *services;
    int32_t n_service;
    int32_t n_accept; /* calls that gRPC may hand over before the loop has looked; 0: 16 */
    /* Silence after which a client is pinged, and gone if it is mute as long; 0: 20 s. */
    int32_t ping_ms;
    fv_rpc_limits limits;
    fv_tls *tls; /* borrowed; NULL: plain text */
    /* Asked first of each call: may this peer call this method? A failure ends the call with it.
     * NULL: any peer may. */
    fv_status (*admit)(void *user, fv_rpc_call *call, const fv_rpc_method *method);
    void *user;
} fv_rpc_server_options;

typedef struct fv_rpc_server fv_rpc_server; /* opaque */

/* Listens and serves. FV_EIO says why it cannot listen: the port is taken, the host is not here.
 * FV_EINVAL: two services have the same method. Tables and strings are borrowed. */
fv_status fv_rpc_server_open(fv_bridge *bridge, const fv_rpc_server_options *opt,
                             fv_rpc_server **out);

int32_t fv_rpc_server_port(const fv_rpc_server *s);  /* that it listens on; 1 for "unix:" */
int32_t fv_rpc_server_calls(const fv_rpc_server *s); /* that run now */

/* Stops listening, so that another program may listen at the address; clients are told to reconnect
 * elsewhere (GOAWAY). Running calls go on until fv_rpc_server_stop. Can be called again. */
void fv_rpc_server_leave(fv_rpc_server *s);

/* Takes no new calls, lets those that run come to their end for grace_ms, then cancels them. `done`
 * runs when the last is over and the server is freed. Once. */
void fv_rpc_server_stop(fv_rpc_server *s, int32_t grace_ms, void (*done)(void *user), void *user);

#endif
