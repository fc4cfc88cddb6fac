#ifndef FOVEA_TESTS_SUPPORT_RPC_RIG_H
#define FOVEA_TESTS_SUPPORT_RPC_RIG_H

/* A server and a channel to it on one loop, with a service whose methods do the simplest thing of
 * each kind; for Criterion and for the plain programs in tests/race. What cannot be, aborts. */
#include "wire/rpc_client.h"
#include "wire/rpc_server.h"

#define RIG_CHECK(x) rig_check((x), #x, __FILE__, __LINE__)
void rig_check(bool good, const char *what, const char *file, int line);

#define RIG_ECHO "/test.Wire/Echo"       /* unary: the same bytes */
#define RIG_COUNT "/test.Wire/Count"     /* server stream: {u32 n, u32 bytes} -> n messages */
#define RIG_COLLECT "/test.Wire/Collect" /* client stream -> {u32 n, u32 bytes} */
#define RIG_TALK "/test.Wire/Talk"       /* both: each message back; a half-close ends it */
#define RIG_STALL "/test.Wire/Stall"     /* server stream that never answers; one at a time */
#define RIG_FAIL "/test.Wire/Fail"       /* unary: fails with the fv_status in the first byte */

enum { RIG_MESSAGE_MAX = 1 << 20, RIG_QUEUE_MAX = 256 << 10 };

/* What the service saw. */
typedef struct rig_seen {
    int32_t started, messages, half_closed, cancelled, ended;
    fv_rpc_end end;    /* of the last one; its text is not kept */
    size_t queue_most; /* bytes that waited to be sent, at most */
    int64_t left_ms;   /* until the deadline, when the last call started */
    char traceparent[64], peer[64];
    fv_rpc_call *stalled;
} rig_seen;

typedef struct rig {
    uv_loop_t loop;
    fv_bridge *bridge;
    fv_rpc_server *server;
    fv_rpc_channel *channel;
    char target[64];
    fv_rpc_service services[4];
    int32_t n_service;
    rig_seen seen;
    bool server_done, bridge_done;
    uv_timer_t alarm;
    bool rang;
    bool (*admit)(void *user, const fv_rpc_peer *peer, const char *path);
} rig;

/* Add services to r->services before, if others than the test service are wanted. */
void rig_open(rig *r);
/* Until *flag, at most ten seconds. */
void rig_wait(rig *r, const bool *flag);
void rig_wait_for(rig *r, const int32_t *count, int32_t at_least);
void rig_sleep(rig *r, int32_t ms);
/* Stops everything in order; uv_run returns by itself and nothing is left on the loop. */
void rig_close(rig *r, int32_t grace_ms);

/* What a caller hears. */
typedef struct rig_heard {
    fv_rpc_call *call;
    int32_t n;
    size_t bytes;
    uint32_t numbers[2]; /* the first eight bytes of the last message */
    int32_t writable;
    bool over;
    fv_rpc_end end;
    char text[FV_RPC_TEXT_MAX], trailer[64];
    bool pause_each; /* hold back after every message */
    int32_t fail_at; /* the n-th message is refused, counted from 1 */
} rig_heard;

/* Begins a call that tells `h`. */
void rig_call(rig *r, rig_heard *h, const char *path, int64_t deadline_ms);
/* The same with n bytes and a half-close. */
void rig_ask(rig *r, rig_heard *h, const char *path, int64_t deadline_ms, const void *p, size_t n);
/* And waits for its end. */
void rig_ask_wait(rig *r, rig_heard *h, const char *path, const void *p, size_t n);

grpc_byte_buffer *rig_bytes(const void *p, size_t n); /* a copy */
grpc_byte_buffer *rig_zeros(size_t n);

#endif
