#ifndef FOVEA_TESTS_SUPPORT_FAKE_WORKER_H
#define FOVEA_TESTS_SUPPORT_FAKE_WORKER_H

/* A worker that joins a router and speaks its services without a model: tokens are numbers, and it
 * errs as it is told. Shares the loop of the router under test. What cannot be, aborts. */
#include "fleet.pb-c.h"
#include "handoff.pb-c.h"
#include "wire/rpc_client.h"
#include "wire/rpc_server.h"

typedef struct fake_worker {
    /* Set before fake_open. */
    const char *name;
    Fovea__Inference__V1__Role role;
    const char *compat; /* NULL: what all have */
    uint64_t capacity;
    bool draining;

    /* May be changed at any time. */
    fv_status fail_open;  /* prefill fails with this before anything was said */
    fv_status fail_later; /* and this, behind the first token; on a decode worker, in the middle */
    int32_t fail_times;   /* so often; below 0: always */
    bool stall;           /* prefill says nothing; decode nothing more than one token */
    bool ends_at_first;   /* the first token is an EOS */
    int32_t n_flood;      /* decode: so many tokens in large messages, whatever was asked for */
    /* Decode: takes the call over, behind its first token; it goes on with fake_send_token. */
    void (*take)(void *user, fv_rpc_call *c);
    void *user;

    /* Seen. */
    int32_t calls, cancelled, running, ended;
    bool welcome, join_over;
    fv_rpc_end join_end;
    char join_text[FV_RPC_TEXT_MAX];
    char request_id[160], decode_address[64];
    uint32_t max_tokens;

    /* Its own. */
    fv_bridge *bridge;
    fv_rpc_server *server;
    fv_rpc_channel *router;
    fv_rpc_call *join;
    char address[64];
    bool stopped;
} fake_worker;

/* Serves, and joins the router at `target`. */
void fake_open(fake_worker *w, fv_bridge *bridge, const char *target);
void fake_report(fake_worker *w); /* another report, as things are */
void fake_leave(fake_worker *w);  /* ends the membership, as if the machine had gone */
/* What a decode worker says: token `index`, from 1; and that it was the last, which ends the call.
 */
void fake_send_token(fv_rpc_call *c, uint32_t index, const char *text);
void fake_send_finished(fv_rpc_call *c);
/* Begins the end; w->stopped says when it has come. */
void fake_close(fake_worker *w);

#endif
