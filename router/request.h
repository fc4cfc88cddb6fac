#ifndef FOVEA_ROUTER_REQUEST_H
#define FOVEA_ROUTER_REQUEST_H

/* REQUEST: a client's request, its states, and the list of all requests.
 *
 *     NEW -------> QUEUED <-------> RUNNING
 *      |             |                 |
 *      |             v                 |
 *      '----------> OVER <-------------'
 *
 *     change               made by                when
 *     NEW -> QUEUED        fv_request_enqueue     its message was checked
 *     NEW -> OVER          fv_request_end         it was refused, or the client has gone
 *     QUEUED -> RUNNING    fv_request_start       workers have room for it
 *     QUEUED -> OVER       fv_request_end         too late, no worker, aborted, or the client has gone
 *     RUNNING -> QUEUED    fv_request_requeue     its attempt failed, or was refused by a worker
 *     RUNNING -> OVER      fv_request_end         answered, or as before, or a failure that repeats anywhere
 *
 * fv_request_set_state allows no other change: it asserts that the table fv_request_changes has the change
 * and the function that makes it. A test compares these lines with the table.
 *
 * Invariants
 *  1. A RUNNING request has one attempt (router/attempt.h): the calls to its workers and its reservations. In
 *     the other states it has none, and holds nothing at any worker.
 *  2. A QUEUED or RUNNING request has a fleet, a message and a name. Its fleet, its sharer and the relay count it.
 *  3. A QUEUED request may have sent tokens to its client, by earlier attempts. Its next attempt continues
 *     after them: a client gets each token once.
 *  4. OVER is final. The client's call is finished or ends by itself; calls to workers are over or cancelled.
 *  5. A request is freed only when it is OVER, its client's call has ended and no thread reads its message; an attempt, when it has no request
 *     and its calls have ended. Both are freed in one place, fv_relay_end_event, when no callback runs.
 *  6. Only router/life.c changes the state. A change that may let another request start sets
 *     fv_relay.dispatch_due; requests start in fv_relay_end_event and nowhere else.
 *
 * Loop thread. */
#include "inference.pb-c.h"
#include "router/admit.h"
#include "router/failure.h"
#include "router/parts.h"
#include "router/relay_options.h"
#include "router/state_change.h"
#include "telemetry/otlp/spans.h"

typedef Fovea__Inference__V1__GenerateRequest fv_request_message;
typedef Fovea__Inference__V1__Tokens fv_tokens_message;
typedef Fovea__Inference__V1__PromptTokens fv_prompt_message;

enum {
    FV_REQUEST_ID_MAX = 128,
    FV_ABORT_SECRET_BYTES = 16,
    FV_REQUEST_PREEMPTIONS = 2, /* at most, of a request */
    FV_DEADLINE_SLACK_MS = 200, /* tolerance between a worker's timer and ours */
};

typedef enum fv_request_state {
    FV_REQUEST_NEW = 0,
    FV_REQUEST_QUEUED,
    FV_REQUEST_RUNNING,
    FV_REQUEST_OVER,
} fv_request_state;

enum { FV_N_REQUEST_CHANGE = 6 };
extern const fv_state_change fv_request_changes[FV_N_REQUEST_CHANGE];
const char *fv_request_state_name(fv_request_state s); /* "NEW" */

enum { FV_REASONING_NAME_MAX = 63 };

typedef struct fv_request {
    struct fv_request *next; /* of all; queued ones of a fleet by start tag */
    fv_relay *relay;
    fv_request_state state;
    fv_rpc_call *client;           /* borrowed; NULL: has ended */
    fv_arena arena;                /* owns msg */
    const fv_request_message *msg; /* NULL: not received yet */
    size_t bytes;                  /* of the message */
    char id[FV_REQUEST_ID_MAX + 1];
    /* "<router>/<secret>" */
    char abort_token[FV_ROUTER_ID_MAX + 1 + 2 * FV_ABORT_SECRET_BYTES + 1];
    /* Unique in the fleet, where other routers have requests, too: "<router>/<id>", or with tenants
     * "<router>/<tenant>/<id>". */
    char fleet_id[FV_ROUTER_ID_MAX + 1 + FV_TENANT_NAME_MAX + 1 + FV_REQUEST_ID_MAX + 1];
    fv_tenant_use *tenant;        /* counts the request until it is freed */
    fv_account *sharer;           /* likewise */
    fv_fleet *fleet;              /* counts it; NULL: not known yet */
    double start_tag, finish_tag; /* router/queue.h */
    /* Facts about the model, kept at admission: its last prefill worker may leave while a decode worker
     * has the request. */
    char reasoning[FV_REASONING_NAME_MAX + 1]; /* the form of its reasoning; "": it has none */
    bool asks_adapter;                         /* msg->model names an adapter */
    fv_request_bounds need;
    fv_work work;               /* expected */
    struct fv_attempt *attempt; /* RUNNING; else NULL */

    /* The names of its prompt's beginnings: router/kept.c. While it is `naming`, a thread reads msg, and it neither starts
     * nor is freed. */
    fv_parts parts;
    fv_prompt_marks mark;
    bool naming;
    uv_work_t work_of_naming;
    fv_rpc_op named;

    fv_span span;                             /* if not recorded, its context is the client's */
    char trace_id[2 * FV_TRACE_ID_BYTES + 1]; /* for logs; "": none */
    double queued_s;                          /* when it last entered the queue */

    double arrived_s, started_s, first_s; /* arrival, first attempt, first token. 0: not yet */
    double token_s;                       /* when the client was last sent tokens */
    /* Until then the worker that failed is not tried again, even if it is the only one. */
    double exclude_until_s;
    double no_worker_s; /* since when there has been no worker for it; 0: there is one */
    /* Messages that the transport has taken for the client, and when it last took one. */
    uint64_t n_taken_over;
    double taken_over_s;

    /* The events that the client has received. */
    bool accepted;
    uint32_t n_prompt_event; /* events of the prompt's tokens */
    uint32_t n_token;
    size_t cap_id, cap_digest;
    uint32_t *id_of;     /* [n_token], owned */
    uint64_t *digest_of; /* [n_token], owned */

    /* The last attempt that failed, and whether to avoid its workers. */
    uint32_t n_replay;
    char last_p[FV_WORKER_NAME_MAX + 1], last_d[FV_WORKER_NAME_MAX + 1];
    bool exclude_p, exclude_d;
    char why[FV_RPC_TEXT_MAX];
    int32_t n_tenant_full; /* decode workers that refused more KV to its tenant */
    int32_t n_preempted;   /* how often a decode worker gave its KV to another answer */

    /* Workers that were lost while they worked on it, and the workers of the attempt that has just
     * failed, which may turn out to be lost: router/blame.c. */
    int32_t n_lost;
    char lost_at[2][FV_WORKER_NAME_MAX + 1];
    char broken_p[FV_WORKER_NAME_MAX + 1], broken_d[FV_WORKER_NAME_MAX + 1];
    double broken_s;
} fv_request;

struct fv_relay {
    fv_relay_options opt;
    fv_request *first, **tail;
    struct fv_attempt *over_attempts; /* to be freed after the event */
    int32_t n_queued, n_running;
    int32_t n_alive;   /* requests and attempts that are not freed */
    int32_t n_ended;   /* requests whose client's call has ended, to be freed after the event */
    bool dispatch_due; /* queued requests may start after the event */
    bool draining;
    char again_ms[12]; /* draining: the retry hint for clients */
    size_t bytes;      /* of all requests' messages */
    double opened_s;
    uint64_t n_refused, n_expired; /* see fv_relay_counts */
    uint64_t n_logged;             /* n_refused + n_expired of the last log line */
    double logged_s;
};

/* Opens a NEW request for a client's call and appends it to the list. FV_ENOMEM; or the tenant's limit, as
 * fv_tenancy_begin. */
fv_status fv_request_open(fv_relay *relay, fv_rpc_call *client, fv_tenant_use *tenant,
                          fv_account *sharer, fv_request **out);

/* Frees the requests that are OVER and whose client's call has ended. */
void fv_requests_free_over(fv_relay *relay);

/* Moves a request in the list: before `next`, or to the end if that is NULL. */
void fv_request_move(fv_request *r, const fv_request *next);

/* Moves a request to a fleet, which counts it from now on. It is NEW or QUEUED. */
void fv_request_set_fleet(fv_request *r, fv_fleet *f, const fv_request_bounds *need,
                          const fv_work *work);

/* Changes the state, with all counts. by: the function that makes the change, __func__. */
void fv_request_set_state(fv_request *r, fv_request_state to, const char *by);

/* Whether it is QUEUED or RUNNING. */
bool fv_request_is_active(const fv_request *r);

/* Finds an active request; NULL: this tenant has none with this id. */
fv_request *fv_request_find(const fv_relay *relay, const fv_tenant_use *tenant, const char *id);

/* Whether KV for all of its answer is to be reserved at once: it was preempted often enough, it will have all
 * of its tokens, or it continues a kept conversation. */
bool fv_request_reserves_all(const fv_request *r);

double fv_request_left_ms(const fv_request *r, double now_s);      /* until its time is over */
fv_status fv_request_timed_out(const fv_request *r, double now_s); /* FV_EDEADLINE, and why */

#endif
