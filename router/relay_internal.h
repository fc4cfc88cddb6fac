#ifndef FOVEA_ROUTER_RELAY_INTERNAL_H
#define FOVEA_ROUTER_RELAY_INTERNAL_H

/* A request and its attempts; shared by the files of the relay only.
 *
 *   generate.c   the client's call: brings a request, and receives its events
 *   relay.c      the list of requests: dispatch, limits, the end
 *   queue.c      waiting requests: their order, the work ahead of one, each tenant's part of the queue
 *   attempt.c    the calls to two workers for a request
 *   replay.c     what follows when a request's attempt has failed
 *   watch.c      whether a request makes progress
 *   blame.c      whether a request causes the loss of workers
 *   answer.c     events to the client, and the tokens it has received
 *   trace.c      spans */
#include "handoff.pb-c.h"
#include "inference.pb-c.h"
#include "router/admit.h"
#include "router/deadline.h"
#include "router/relay.h"
#include "router/reservation.h"
#include "router/sharers.h"
#include "telemetry/otlp/spans.h"

typedef Fovea__Inference__V1__GenerateRequest fv_request_message;
typedef Fovea__Inference__V1__Tokens fv_tokens_message;
typedef Fovea__Inference__V1__Finished fv_finished_message;
typedef Fovea__Inference__V1__Report fv_report_message;

enum {
    FV_REQUEST_ID_MAX = 128,
    FV_ABORT_SECRET_BYTES = 16,
    FV_DEADLINE_SLACK_MS = 200, /* tolerance between a worker's timer and ours */
};

typedef struct fv_request fv_request;

/* One attempt at a request. It is freed when its calls have ended and it has no request; messages that still
 * arrive for an abandoned attempt are dropped. */
typedef struct fv_attempt {
    fv_request *req; /* NULL: abandoned */
    fv_relay *relay;
    fv_rpc_call *prefill, *decode; /* borrowed; NULL: not begun, or over */
    fv_span prefill_span, decode_span;
    fv_reservation p, d;
    uint32_t n_prompt;                         /* events of the prompt that it has brought */
    uint32_t n_replay;                         /* tokens that the client had before this attempt */
    fv_arena arena;                            /* owns the workers' messages that are kept */
    const Fovea__Handoff__V1__Ticket *ticket;  /* from Begun */
    bool first;                                /* FirstToken has come, or is not expected */
    bool ended;                                /* the answer had ended before this attempt */
    Fovea__Inference__V1__FinishReason finish; /* set: the answer ended with or before FirstToken */
    bool decoding;                             /* the decode worker has sent a token */
    bool prefill_done;                         /* the prefill worker is not needed any more */
    bool waited;                               /* started without memory at the decode worker */
    double token_s; /* when the last token came; 0: do not measure the time to the next */
    const fv_report_message *report;     /* the prefill worker's half, if it came */
    const fv_finished_message *finished; /* the decode worker's Finished, if it came */
} fv_attempt;

typedef enum fv_request_state {
    FV_REQUEST_OVER = 0,
    FV_REQUEST_QUEUED,
    FV_REQUEST_RUNNING,
} fv_request_state;

struct fv_request {
    fv_request *next; /* of all; queued ones of a fleet by start tag */
    fv_relay *relay;
    fv_request_state state;
    fv_rpc_call *client;           /* borrowed; NULL: over */
    const fv_request_message *msg; /* the client call's */
    size_t bytes;                  /* of the message */
    char id[FV_REQUEST_ID_MAX + 1];
    char
        abort_token[FV_ROUTER_ID_MAX + 1 + 2 * FV_ABORT_SECRET_BYTES + 1]; /* "<router>/<secret>" */
    /* Unique in the fleet, where other routers have requests, too: "<router>/<id>", or with tenants
     * "<router>/<tenant>/<id>". */
    char fleet_id[FV_ROUTER_ID_MAX + 1 + FV_TENANT_NAME_MAX + 1 + FV_REQUEST_ID_MAX + 1];
    fv_tenant_use *tenant; /* counts the request until it is freed */
    fv_sharer *sharer;     /* likewise */
    fv_fleet *fleet;       /* counts it; NULL: not known yet */
    double start, end;     /* start and finish tags: router/relay.h */
    fv_need need;
    fv_work work;        /* expected */
    fv_attempt *attempt; /* RUNNING; else NULL */

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

    /* What the client has received. */
    bool accepted;
    uint32_t n_prompt_told; /* events of the prompt's tokens */
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

    /* Workers that were lost while they worked on it, and the workers of the attempt that has just
     * failed, which may turn out to be lost: router/blame.c. */
    int32_t n_lost;
    char lost_at[2][FV_WORKER_NAME_MAX + 1];
    char broken_p[FV_WORKER_NAME_MAX + 1], broken_d[FV_WORKER_NAME_MAX + 1];
    double broken_s;
};

struct fv_relay {
    fv_relay_options opt;
    fv_request *first, **tail;
    int32_t n_queued, n_running, n_alive;
    size_t bytes;
    double opened_s;
    uint64_t n_refused, n_expired; /* see fv_relay_counts */
    uint64_t n_logged;             /* n_refused + n_expired of the last log line */
    double logged_s;
    bool dispatching, draining;
    char again_ms[12]; /* draining: the retry hint for clients */
};

/* ---- relay.c ---------------------------------------------------------------------------- */

/* Opens a request for a new call; OVER until it is known to be valid. */
fv_status fv_request_open(fv_relay *relay, fv_rpc_call *client, fv_tenant_use *tenant,
                          fv_sharer *sharer, fv_request **out);
/* Ends and frees a request whose client's call is over. */
void fv_request_close(fv_request *r);

/* Finds a request that is not over; NULL: this tenant has none with this id. */
fv_request *fv_relay_find(const fv_relay *relay, const fv_tenant_use *tenant, const char *id);

/* Moves a request to a fleet, which counts it from now on. It is queued or not yet admitted. */
void fv_request_set_fleet(fv_request *r, fv_fleet *f, const fv_need *need, const fv_work *work);

void fv_request_set_state(fv_request *r, fv_request_state to);

/* Ends a request without a word to its client: abandons its attempt. Calling it again is fine. */
void fv_request_end(fv_request *r);

/* Finishes the client's call, with fv_last_error if st is a failure, and ends the request. Calling it again
 * is fine. */
void fv_request_finish(fv_request *r, fv_status st);

/* Checks that a new request would be answered in time. FV_EBUSY, with a retry hint on the call, or FV_ENOMEM
 * if not. Before the message is read, w is {0}: it may be anything. */
fv_status fv_relay_check_time(fv_relay *relay, fv_fleet *f, fv_rpc_call *client,
                              const fv_sharer *sharer, const fv_work *w);

double fv_request_left_ms(const fv_request *r, double now_s);      /* until its time is over */
fv_status fv_request_timed_out(const fv_request *r, double now_s); /* FV_EDEADLINE, and why */

/* ---- queue.c ---------------------------------------------------------------------------- */

/* Sets a request's tags, by its sharer's weight and its expected work, and puts it in order. */
void fv_relay_place(fv_request *r);

/* The queued work that would be served before a new request of x. */
fv_work fv_queue_ahead(const fv_relay *relay, fv_fleet *f, const fv_sharer *x);

/* Prepares a pass over the queue: counts the fields of fv_fleet and fv_fleet_part. */
void fv_queue_look(fv_relay *relay);
/* Whether another slot would not exceed its sharer's share, by weight among sharers with requests; a share is
 * at least one slot. */
bool fv_queue_below_share(const fv_request *r);

/* In a full queue, the sharer that has most gives way to one that has less. may_come: whether a request of x may
 * come. make_room: makes room for a request of this many bytes, by ending the last requests of the sharer that
 * has most. False: x would have as much. */
bool fv_queue_may_come(const fv_relay *relay, const fv_sharer *x);
bool fv_queue_make_room(fv_relay *relay, const fv_sharer *x, size_t bytes);

/* ---- generate.c ------------------------------------------------------------------------- */

/* Checks a request against the model of this fleet and moves it there; also a queued request whose client
 * has no tokens yet. Nothing changes on failure. */
fv_status fv_request_admit(fv_request *r, fv_fleet *f);

/* ---- attempt.c -------------------------------------------------------------------------- */

/* Starts an attempt with a prefill; RUNNING. No decode worker (NULL) for an answer of one token. */
fv_status fv_attempt_start(fv_request *r, fv_registered_worker *p, fv_registered_worker *d);

/* Starts an attempt that continues a conversation kept at d; RUNNING. */
fv_status fv_attempt_follow(fv_request *r, fv_registered_worker *d);

/* Detaches an attempt from its request, releases its reservations and cancels its calls. */
void fv_attempt_abandon(fv_attempt *a);

/* Resumes reading from the decode worker when the client reads again. */
void fv_attempt_resume(fv_attempt *a);

/* Whether the attempt waits for memory at its decode worker, which has granted none yet. */
bool fv_attempt_waits(const fv_attempt *a);

/* Handles a worker that is gone (on_gone in router/registry.h); it may be neither of the attempt's two. */
void fv_attempt_lost(fv_attempt *a, const fv_registered_worker *w);

/* Treats a hung worker, or one where this request hangs, as lost although it is still connected. */
void fv_attempt_hung(fv_attempt *a, const fv_registered_worker *w);

/* ---- replay.c --------------------------------------------------------------------------- */

/* Why an attempt failed; the sentence is in fv_last_error. */
typedef struct fv_failure {
    fv_status status;
    fv_origin origin;
    const char *p, *d;         /* names of its workers; "" none */
    bool exclude_p, exclude_d; /* avoid them for now */
} fv_failure;

/* Whether such a failure counts against the worker (router/breaker.h). */
bool fv_failure_counts(fv_status st, fv_origin origin);

/* Handles a failed attempt, which is gone: the request ends, waits for memory, or is tried again. */
void fv_request_failed(fv_request *r, const fv_failure *f);

/* ---- watch.c ---------------------------------------------------------------------------- */

/* Finds hung requests and workers; other workers take over. */
void fv_watch_tick(fv_relay *relay, double now_s);

/* ---- blame.c ---------------------------------------------------------------------------- */

/* Remembers who worked on an attempt that has failed, perhaps because a worker was lost. */
void fv_blame_note(fv_request *r, const fv_attempt *a);
/* Counts the loss of w against the requests it worked on, and ends the one that has lost a second worker. */
void fv_blame_lost(fv_relay *relay, const fv_registered_worker *w);
fv_status fv_blame_sentence(const fv_request *r); /* FV_EFATAL: the request has lost two workers */

/* ---- answer.c --------------------------------------------------------------------------- */

/* All of these may fail for lack of memory, or because the client reads too slowly. */
fv_status fv_answer_accept(fv_request *r); /* sends Accepted once; later calls do nothing */

/* Sends event `number` (0, 1, ...) of the prompt's tokens, unless the client has it from another attempt. */
fv_status fv_answer_prompt(fv_request *r, uint32_t number, Fovea__Inference__V1__PromptTokens *t);

/* FV_EDATA: these are not the next tokens. */
fv_status fv_answer_check(const fv_request *r, const fv_tokens_message *t);
fv_status fv_answer_tokens(fv_request *r, fv_tokens_message *t);

/* Sends the last message if both workers are done; a slow client gets it later. */
void fv_answer_maybe_finish(fv_request *r);

/* ---- trace.c ---------------------------------------------------------------------------- */

/* Begins the request's span when its call arrives. */
void fv_trace_begin(fv_request *r);
/* Records the wait in the queue when the request leaves it. */
void fv_trace_queued(const fv_request *r, double now_s);
/* Ends the request's span when the answer is complete. */
void fv_trace_answer(fv_request *r, const fv_report_message *report);
/* Ends the request's span when the client's call is over; does nothing after fv_trace_answer. */
void fv_trace_end(const fv_request *r, const fv_rpc_end *end);
/* Ends the span of an attempt's call. */
void fv_trace_call(const fv_attempt *a, const fv_span *s, const fv_rpc_end *end);

#endif
