#ifndef FOVEA_TESTS_SUPPORT_NET_H
#define FOVEA_TESTS_SUPPORT_NET_H

/* A server and a channel to it on one loop, with a service whose methods do the simplest thing of
 * each kind; for Criterion and for the plain programs in tests/race. Any error aborts. */
#include "rpc/client.h"
#include "rpc/server.h"

#define NET_CHECK(x) net_check((x), #x, __FILE__, __LINE__)
void net_check(bool good, const char *what, const char *file, int line);

/* Runs a loop until nothing is left on it, at most a minute, and closes it. Handles that are left
 * are leaks: they are printed, and the program aborts. */
void net_loop_close(uv_loop_t *loop);

#define NET_ECHO "/test.Wire/Echo"       /* unary: the same bytes */
#define NET_COUNT "/test.Wire/Count"     /* server stream: {u32 n, u32 bytes} -> n messages */
#define NET_COLLECT "/test.Wire/Collect" /* client stream -> {u32 n, u32 bytes} */
#define NET_SESSION "/test.Wire/Talk"    /* both: each message back; a half-close ends it */
#define NET_STALL "/test.Wire/Stall"     /* server stream that never responds; one at a time */
#define NET_FAIL "/test.Wire/Fail"       /* unary: fails with the fv_status in the first byte */
/* Bidi: makes a Stall on the call's behalf, with a deadline of an hour, and ends with its
 * half-close. */
#define NET_RELAY "/test.Wire/Relay"

enum { NET_MESSAGE_MAX = 1 << 20, NET_QUEUE_MAX = 256 << 10 };

/* What the service saw. */
typedef struct net_seen {
    int32_t started, messages, half_closed, cancelled, ended;
    fv_rpc_end end;    /* of the last one; its message is not kept */
    size_t queue_most; /* bytes that waited to be sent, at most */
    int64_t left_ms;   /* until the deadline, when the last call started */
    char traceparent[64], forwarded[64], peer[64];
    fv_rpc_call *stalled;
    fv_rpc_channel *channel; /* for Relay */
    int32_t relay_ended;
    fv_status relay_status;
} net_seen;

typedef struct net {
    uv_loop_t loop;
    fv_bridge *bridge;
    fv_rpc_server *server;
    fv_rpc_channel *channel;
    char target[64];
    fv_rpc_service services[4];
    int32_t n_service;
    net_seen seen;
    bool server_done, bridge_done;
    uv_timer_t alarm;
    bool rang;
    fv_rpc_limits limits;
    /* Set before net_open, and closed after net_close; NULL: plain text. */
    fv_tls *server_tls, *channel_tls;
    const char *server_name; /* of rpc/client.h */
    fv_status (*admit)(void *user, fv_rpc_call *call, const fv_rpc_method *method);
} net;

/* Add services to r->services first, if others than the test service are needed. */
void net_open(net *r);
/* Waits for *flag, and fails when that takes minutes. */
void net_wait(net *r, const bool *flag);
void net_wait_for(net *r, const int32_t *count, int32_t at_least);
void net_sleep(net *r, int32_t ms);
/* Stops everything in order; uv_run returns by itself and nothing is left on the loop. */
void net_close(net *r, int32_t grace_ms);

/* What a caller received. */
typedef struct net_heard {
    fv_rpc_call *call;
    int32_t n;
    size_t bytes;
    uint32_t numbers[2]; /* the first eight bytes of the last message */
    int32_t writable;
    bool over;
    fv_rpc_end end;
    char text[FV_RPC_TEXT_MAX], trailer[64];
    bool pause_each; /* hold back after every message */
    int32_t fail_at; /* the n-th message, counted from 1, is refused */
} net_heard;

/* Starts a call whose events go to `h`. */
void net_call(net *r, net_heard *h, const char *path, int64_t deadline_ms);
/* The same with one entry of metadata. */
void net_call_with(net *r, net_heard *h, const char *path, int64_t deadline_ms,
                   const fv_rpc_metadata *metadata);
/* The first, with n bytes and a half-close. */
void net_ask(net *r, net_heard *h, const char *path, int64_t deadline_ms, const void *p, size_t n);
/* Waits for its end. */
void net_ask_wait(net *r, net_heard *h, const char *path, const void *p, size_t n);

grpc_byte_buffer *net_bytes(const void *p, size_t n); /* a copy */
grpc_byte_buffer *net_zeros(size_t n);

#endif
