#ifndef FOVEA_TESTS_SUPPORT_CALLER_H
#define FOVEA_TESTS_SUPPORT_CALLER_H

/* Clients of a router that runs as a program: each keeps asking, one request at a time, and retries
 * UNAVAILABLE at its next address if told to, as a gRPC client with a retry policy does. Any other
 * failure aborts. */
#include "rpc/client.h"

enum { CALLER_ADDRESSES = 2, CALLER_PATIENCE_MS = 60000 };

/* The loop of all of them. */
typedef struct caller_rig {
    uv_loop_t loop;
    fv_bridge *bridge;
    uv_timer_t tick;
} caller_rig;
void caller_rig_open(caller_rig *r);
void caller_rig_close(caller_rig *r);
void caller_rig_run(caller_rig *r, uint64_t ms);

typedef struct caller {
    /* Set before it starts. */
    uint32_t max_tokens, keep_ms;
    bool once;
    uint8_t conversation[128]; /* it continues with this one */
    size_t n_conversation;
    /* Results. */
    int n_done, n_failed;
    int n_retry, n_row, n_row_most; /* in all, of the current request, and at most of one */
    uint32_t n_token;               /* of the current request */
    bool finished;
    uint64_t bytes_bound;
    char why[FV_RPC_TEXT_MAX], decode_worker[80];
    uint8_t kept[128];
    size_t n_kept;
    /* Private. */
    caller_rig *rig;
    fv_rpc_channel *to[CALLER_ADDRESSES];
    int at; /* the current address */
    uint32_t ids[8];
    fv_rpc_call *call;
    uv_timer_t again;
    bool stop, closed;
} caller;

/* b may be NULL. */
void caller_start(caller_rig *r, caller *k, const char *a, const char *b);
/* Waits for the current request; nothing may have failed. */
void caller_stop(caller *k);
void caller_close(caller *k);

/* Runs the loop until the condition holds. */
#define CALLER_UNTIL(rig, condition)                                                               \
    do {                                                                                           \
        uint64_t until_ = uv_now(&(rig)->loop) + CALLER_PATIENCE_MS;                               \
        while (!(condition) && uv_now(&(rig)->loop) < until_) uv_run(&(rig)->loop, UV_RUN_ONCE);   \
        NET_CHECK(condition);                                                                      \
    } while (0)

#endif
