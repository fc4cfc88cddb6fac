#ifndef FOVEA_TESTS_SUPPORT_ROUTER_RIG_H
#define FOVEA_TESTS_SUPPORT_ROUTER_RIG_H

/* A router on a loop with fake workers around it, and clients. Any error aborts. */
#include "router/router.h"
#include "tests/support/fake_worker.h"

typedef struct router_rig {
    uv_loop_t loop;
    fv_bridge *bridge;
    fv_router *router;
    fv_rpc_server *server;
    fv_rpc_channel *channel;
    fv_rpc_service services[2];
    char target[64];     /* where clients call */
    fv_rpc_server *door; /* where workers join */
    char fleet[64];
    int32_t n_serving; /* times on_serving was called */
    bool serving, router_done, server_done, door_done, bridge_done, rang;
    uv_timer_t alarm;
    fake_worker p, d;   /* opened by rig_with_workers */
    fake_worker p1, d1; /* and these by rig_with_pairs */
} router_rig;

/* The messages that a client receives for its request. */
typedef struct client {
    fv_rpc_call *call;
    int32_t n_accepted, n_tokens, n_finished;
    uint32_t ids[512];
    char text[8192], request_id[160], abort_token[64], model[64];
    char prefill_worker[64], decode_worker[64];
    uint64_t bytes_bound, digests[8], bytes_raw, bytes_text_end;
    size_t n_digests;
    uint8_t conversation[128];
    size_t n_conversation;
    uint32_t n_generated, n_replays, keep_ms;
    char report_prefill[64], report_decode[64], notes[512];
    Fovea__Inference__V1__FinishReason reason;
    bool over, pause;
    const char *authorization; /* that it shows; NULL: none */
    const char *forwarded;     /* x-forwarded-for, likewise */
    fv_rpc_end end;
    char why[FV_RPC_TEXT_MAX];
} client;

/* Used when `opt` is NULL: generous times, three replays. */
fv_router_options router_rig_options(void);
void router_rig_open(router_rig *r, const fv_router_options *opt);
/* Open the rig with one worker of each kind, both ready, or with two of each. */
void router_rig_with_workers(router_rig *r, const fv_router_options *opt);
void router_rig_with_pairs(router_rig *r, const fv_router_options *opt);
void router_rig_join(router_rig *r, fake_worker *w); /* opens it and waits for its welcome */
/* All calls are over by now, or are ended by this. */
void router_rig_close(router_rig *r);

void router_rig_wait(router_rig *r, const bool *flag);
void router_rig_wait_for(router_rig *r, const int32_t *count, int32_t at_least);
void router_rig_sleep(router_rig *r, int32_t ms);

/* A request with the prompt "hello"; change what should differ. */
void client_request(Fovea__Inference__V1__GenerateRequest *req, uint32_t max_tokens);
void client_ask(router_rig *r, client *c, const Fovea__Inference__V1__GenerateRequest *req,
                int64_t deadline_ms);
void client_ask_wait(router_rig *r, client *c, uint32_t max_tokens);

/* The state of the fleet as the router reports it. */
typedef struct fleet_seen {
    bool over;
    fv_status status;
    uint32_t n_queued, n_running;
    uint64_t n_refused, n_expired; /* for their deadlines */
    int32_t n_worker;
    Fovea__Inference__V1__WorkerState state[8];
    uint32_t n_failed[8];
    double resting[8];
} fleet_seen;
void router_rig_fleet(router_rig *r, fleet_seen *f);

#endif
