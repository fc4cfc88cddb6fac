#ifndef FOVEA_ROUTER_RELAY_INTERNAL_H
#define FOVEA_ROUTER_RELAY_INTERNAL_H

/* A request and its attempts; shared by the files of the relay only.
 *
 *   generate.c   the client's call: brings a request, and is notified by it
 *   relay.c      the list of requests: dispatch, limits, the end
 *   queue.c      those that wait: in which order, what is ahead of one, how much of it each has
 *   attempt.c    the calls to two workers for a request
 *   replay.c     what follows when a request's attempt has failed
 *   watch.c      whether it makes progress
 *   blame.c      whether the request causes the loss of workers
 *   answer.c     events to the client, and what it has received of them
 *   trace.c      its spans */
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
    FV_DEADLINE_SLACK_MS = 200, /* two clocks that are set to the same time */
};

typedef struct fv_request fv_request;

/* One try. It is freed when its calls have ended and no request has it any more; until then what
 * still comes of an abandoned one is dropped. */
typedef struct fv_attempt {
    fv_request *req; /* NULL: abandoned */
    fv_relay *relay;
    fv_rpc_call *prefill, *decode; /* borrowed; NULL before and after */
    fv_span prefill_span, decode_span;
    fv_reservation p, d;
    uint32_t n_replay;                         /* tokens that the client had before it */
    fv_arena arena;                            /* what the workers said */
    const Fovea__Handoff__V1__Ticket *ticket;  /* from Begun */
    bool first;                                /* the first token came, or word that */
    bool ended;                                /* the answer had ended before this attempt */
    Fovea__Inference__V1__FinishReason finish; /* the answer ends with the first token, or did */
    bool decoding;                             /* a token came of the decode worker */
    bool prefill_done;                         /* nothing more is expected of it */
    bool waited;                               /* waiting for memory at the decode worker */
    double token_s; /* when the last token came; 0: the time to the next says nothing */
    const fv_report_message *report;     /* the prefill worker's half, if it came */
    const fv_finished_message *finished; /* the decode worker's word */
} fv_attempt;

typedef enum fv_request_state {
    FV_REQUEST_OVER = 0,
    FV_REQUEST_QUEUED,
    FV_REQUEST_RUNNING,
} fv_request_state;

struct fv_request {
    fv_request *next; /* of all, in the order in which they came */
    fv_relay *relay;
    fv_request_state state;
    fv_rpc_call *client;           /* borrowed; NULL: over */
    const fv_request_message *msg; /* the client call's */
    size_t bytes;                  /* of the message */
    char id[FV_REQUEST_ID_MAX + 1];
    char
        abort_token[FV_ROUTER_ID_MAX + 1 + 2 * FV_ABORT_SECRET_BYTES + 1]; /* "<router>/<secret>" */
    /* In the fleet, where other routers have requests, too: "<router>/<id>", or with tenants
     * "<router>/<tenant>/<id>". */
    char fleet_id[FV_ROUTER_ID_MAX + 1 + FV_TENANT_NAME_MAX + 1 + FV_REQUEST_ID_MAX + 1];
    fv_tenant_use *tenant; /* it is counted there until it is freed */
    fv_sharer *sharer;     /* likewise */
    fv_fleet *fleet;       /* that it is for, and counted there; NULL: not known yet */
    double start;          /* its start tag */
    fv_need need;
    fv_work work;        /* that it is expected to be */
    fv_attempt *attempt; /* RUNNING; else NULL */

    fv_span span; /* its context is the client's where none is recorded */
    char trace_id[2 * FV_TRACE_ID_BYTES + 1]; /* of the logs; "": none */
    double queued_s;                          /* since it has been in the queue this time */

    double arrived_s, started_s, first_s; /* started: the first attempt. 0: not yet */
    double token_s;                       /* when the client was last sent tokens */
    /* for this time not on the worker that failed, even if it is the only one */
    double exclude_until_s;
    double no_worker_s; /* since then there is no worker for it; 0: there is */
    /* Its client has taken over so many messages, the last one then. */
    uint64_t n_taken_over;
    double taken_over_s;

    /* What the client has got. */
    bool accepted;
    uint32_t n_token;
    size_t cap_id, cap_digest;
    uint32_t *id_of;     /* [n_token], owned */
    uint64_t *digest_of; /* [n_token], owned */

    /* The last attempt that failed, and whom to keep away from for it. */
    uint32_t n_replay;
    char last_p[FV_WORKER_NAME_MAX + 1], last_d[FV_WORKER_NAME_MAX + 1];
    bool exclude_p, exclude_d;
    char why[FV_RPC_TEXT_MAX];
    int32_t n_tenant_full; /* decode workers that refused more KV to its tenant */

    /* Workers that were lost while they worked on it, and those of the attempt that has just
     * broken, of which it is not known yet: router/blame.c. */
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
    uint64_t n_refused, n_expired; /* for their deadlines: when they came, while they waited */
    uint64_t n_logged;             /* of both */
    double logged_s;
    bool dispatching, draining;
    char again_ms[12]; /* draining: when clients may come again */
};

/* ---- relay.c ---------------------------------------------------------------------------- */

/* A request for a call that has come; OVER until it is known to be right. */
fv_status fv_request_open(fv_relay *relay, fv_rpc_call *client, fv_tenant_use *tenant,
                          fv_sharer *sharer, fv_request **out);
/* It has no call any more; freed when nothing needs it. */
void fv_request_close(fv_request *r);

/* NULL when this tenant has none of this id. */
fv_request *fv_relay_find(const fv_relay *relay, const fv_tenant_use *tenant, const char *id);

/* Counted there from now on; it waits, or is not known to be right yet. */
void fv_request_set_fleet(fv_request *r, fv_fleet *f, const fv_need *need, const fv_work *work);

void fv_request_set_state(fv_request *r, fv_request_state to);

/* Nothing more is done for it, and nothing is held. Again is fine. */
void fv_request_end(fv_request *r);

/* Ends it for the client, with fv_last_error when st is a failure. Again is fine. */
void fv_request_finish(fv_request *r, fv_status st);

/* Would a new request be answered in time? FV_EBUSY or FV_ENOMEM when not, with a retry hint on the
 * call. Before the message is read w is {0}: it may be anything. */
fv_status fv_relay_check_time(fv_relay *relay, fv_fleet *f, fv_rpc_call *client,
                              const fv_sharer *sharer, const fv_work *w);

double fv_request_left_ms(const fv_request *r, double now_s);      /* until its time is over */
fv_status fv_request_timed_out(const fv_request *r, double now_s); /* FV_EDEADLINE, and why */

/* ---- queue.c ---------------------------------------------------------------------------- */

/* Its place among those that wait for its fleet, by its sharer's weight and the work that it is expected to be. */
void fv_relay_place(fv_request *r);

/* The work that waits and would be served before a new request of x. */
fv_work fv_queue_ahead(const fv_relay *relay, fv_fleet *f, const fv_sharer *x);

/* Before the queue is looked through: counts what fv_fleet_part says. */
void fv_queue_look(fv_relay *relay);
/* Has its sharer fewer slots than its share of all, by weight, among those who have requests? At least one. */
bool fv_queue_below_share(const fv_request *r);

/* Whoever has most of a full queue gives way to who has less of it: may a request of x come; and makes room for one of
 * so many bytes, by ending those that came last of who has most. False: x would have as much. */
bool fv_queue_may_come(const fv_relay *relay, const fv_sharer *x);
bool fv_queue_make_room(fv_relay *relay, const fv_sharer *x, size_t bytes);

/* ---- generate.c ------------------------------------------------------------------------- */

/* Checks a request against the model of this fleet, which it is for from now on; again for one that
 * waits, and has got no tokens. Nothing changes on failure. */
fv_status fv_request_admit(fv_request *r, fv_fleet *f);

/* ---- attempt.c -------------------------------------------------------------------------- */

/* Begins to prefill; RUNNING. No decode worker (NULL) for an answer of one token. */
fv_status fv_attempt_start(fv_request *r, fv_registered_worker *p, fv_registered_worker *d);

/* Goes on with a conversation that is kept at d; RUNNING. */
fv_status fv_attempt_follow(fv_request *r, fv_registered_worker *d);

/* Takes it from its request: gives everything back, cancels the calls. */
void fv_attempt_abandon(fv_attempt *a);

/* The client reads again. */
void fv_attempt_resume(fv_attempt *a);

/* It waits for memory at its decode worker, which has not granted any. */
bool fv_attempt_waits(const fv_attempt *a);

/* A worker is gone (on_gone in router/registry.h), which may be one of its two. */
void fv_attempt_lost(fv_attempt *a, const fv_registered_worker *w);

/* It hangs, or the request does there: as if it were lost, but that it is there yet. */
void fv_attempt_hung(fv_attempt *a, const fv_registered_worker *w);

/* ---- replay.c --------------------------------------------------------------------------- */

/* Why an attempt failed; the sentence is in fv_last_error. */
typedef struct fv_failure {
    fv_status status;
    fv_origin origin;
    const char *p, *d;         /* names of its workers; "" none */
    bool exclude_p, exclude_d; /* keep away from them for now */
} fv_failure;

/* Does such a failure say that a worker is not well? */
bool fv_failure_counts(fv_status st, fv_origin origin);

/* The request's attempt is over: it ends, waits for memory, or is tried again. */
void fv_request_failed(fv_request *r, const fv_failure *f);

/* ---- watch.c ---------------------------------------------------------------------------- */

/* Finds requests without progress, and workers that hang: other workers take over. */
void fv_watch_tick(fv_relay *relay, double now_s);

/* ---- blame.c ---------------------------------------------------------------------------- */

/* An attempt has broken, perhaps because a worker is lost: remembers who worked on it. */
void fv_blame_note(fv_request *r, const fv_attempt *a);
/* It is lost: ends those requests that have lost a second worker by this. */
void fv_blame_lost(fv_relay *relay, const fv_registered_worker *w);
fv_status fv_blame_sentence(const fv_request *r); /* FV_EFATAL; it has lost two */

/* ---- answer.c --------------------------------------------------------------------------- */

/* All may fail for want of memory, or because the client reads too slowly. */
fv_status fv_answer_accept(fv_request *r); /* once; later ones are silent */

/* FV_EDATA: these are not the tokens that are due. */
fv_status fv_answer_check(const fv_request *r, const fv_tokens_message *t);
fv_status fv_answer_tokens(fv_request *r, fv_tokens_message *t);

/* The last message, when all has been said; a client that reads slowly gets it later. */
void fv_answer_maybe_finish(fv_request *r);

/* ---- trace.c ---------------------------------------------------------------------------- */

/* The call has come. */
void fv_trace_begin(fv_request *r);
/* It waits in the queue no more. */
void fv_trace_queued(const fv_request *r, double now_s);
/* Its answer is complete. */
void fv_trace_answer(fv_request *r, const fv_report_message *report);
/* Its call is over; nothing after fv_trace_answer. */
void fv_trace_end(const fv_request *r, const fv_rpc_end *end);
/* An attempt's call is over. */
void fv_trace_call(const fv_attempt *a, const fv_span *s, const fv_rpc_end *end);

#endif
