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
 * The server answers some calls by itself: unknown methods are UNIMPLEMENTED, messages over a method's limit
 * and calls over its number are RESOURCE_EXHAUSTED, and a call whose client has gone or whose deadline
 * has passed is finished. Messages must not be compressed (UNIMPLEMENTED): gRPC would inflate them
 * before it looks at their size. */
#include "rpc/bridge.h"
#include "rpc/call.h"
#include "rpc/tls.h"

/* The number of messages to and from the server. */
typedef enum fv_rpc_kind {
    FV_RPC_UNARY = 0,     /* one request, one reply */
    FV_RPC_SERVER_STREAM, /* one, many */
    FV_RPC_CLIENT_STREAM, /* many, one */
    FV_RPC_BIDI,          /* many, many */
} fv_rpc_kind;

typedef struct fv_rpc_method {
    const char *path;
    fv_rpc_kind kind;
    int32_t calls_max;  /* at a time; further ones are refused with FV_EBUSY; 0: any number */
    size_t message_max; /* bytes of one received message; 0: 4 MiB */
    size_t queue_max;   /* bytes that may wait to be sent; 0: 1 MiB */
    uint32_t peers;     /* roles that may call the method: for the server's `admit` */
    fv_rpc_events events;
} fv_rpc_method;

typedef struct fv_rpc_service {
    const fv_rpc_method *methods; /* [n_method], borrowed */
    int32_t n_method;
    void *state; /* fv_rpc_call_service; borrowed */
    /* The server begins to stop: finish calls that would last forever. May be NULL. */
    void (*on_stop)(void *state);
} fv_rpc_service;

/* Limits of one server's peers. A server for strangers needs all of them; between members of a
 * fleet, where one connection carries everything, zeros are right. */
typedef struct fv_rpc_limits {
    int32_t streams; /* calls of one connection at a time; 0: any number */
    size_t metadata; /* bytes of metadata of one call, names included; 0: gRPC's 8 KiB */
    /* Bytes that gRPC may hold for all connections of this server, including partial messages. When
     * they are used up, gRPC closes connections, also innocent ones. 0: any number. */
    size_t memory;
    /* A call whose first message is not complete after this time is DEADLINE_EXCEEDED; 0: no limit but
     * the call's deadline. */
    int32_t first_message_ms;
    /* After this time a connection takes no new calls: the peer connects again and shows its
     * certificate again. Running calls have the same time again to end; 0: connections do not age. */
    int32_t age_ms;
} fv_rpc_limits;

typedef struct fv_rpc_server_options {
    const char *listen; /* "HOST:PORT" (port 0: any free port), "unix:PATH" */
    const fv_rpc_service *services;
    int32_t n_service;
    int32_t n_accept; /* calls that gRPC may hand over between two looks of the loop; 0: 16 */
    /* A client is pinged after this silence, and disconnected after the same time without an answer; 0: 20 s. */
    int32_t ping_ms;
    fv_rpc_limits limits;
    fv_tls *tls; /* borrowed; NULL: plain text */
    /* Decides first of all whether this peer may call this method. A failure ends the call with that status.
     * NULL: any peer may. */
    fv_status (*admit)(void *user, fv_rpc_call *call, const fv_rpc_method *method);
    void *user;
} fv_rpc_server_options;

typedef struct fv_rpc_server fv_rpc_server; /* opaque */

/* Listens and serves. FV_EIO: it cannot listen, and why (the port is in use, the address is not this machine's).
 * FV_EINVAL: the address is malformed, or two services have the same method. Tables and strings are borrowed. */
fv_status fv_rpc_server_open(fv_bridge *bridge, const fv_rpc_server_options *opt,
                             fv_rpc_server **out);

int32_t fv_rpc_server_port(const fv_rpc_server *s);  /* the port it listens on; 1 for "unix:" */
int32_t fv_rpc_server_calls(const fv_rpc_server *s); /* running calls */

/* Stops listening, so that another program may listen at the address; clients are told to reconnect
 * elsewhere (GOAWAY). Running calls continue until fv_rpc_server_stop. Calling it again is fine. */
void fv_rpc_server_close_listener(fv_rpc_server *s);

/* Takes no new calls, waits at most grace_ms for running calls, then cancels them. `done`
 * runs when the last call is over and the server is freed. Call it once. */
void fv_rpc_server_stop(fv_rpc_server *s, int32_t grace_ms, void (*done)(void *user), void *user);

#endif
