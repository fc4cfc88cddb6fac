#ifndef FOVEA_ROUTER_ATTEMPT_H
#define FOVEA_ROUTER_ATTEMPT_H

/* ATTEMPT: the calls to a prefill and a decode worker for a request. An attempt only reads its request; what
 * comes of the calls is reported to a table of callbacks, which change the request.
 *
 * An attempt reports until it is abandoned or has failed. Messages that its calls still bring are dropped
 * then, and when the calls have ended, too, it is freed when the event is over (fv_attempts_free_over). Loop
 * thread. */
#include "router/balancer.h"
#include "router/reservation.h"
#include "router/worker_call.h"

/* The reports of an attempt; all are set. A callback may end or requeue the request, which abandons the
 * attempt. */
typedef struct fv_attempt_events {
    /* The workers have taken the request: a decode worker has granted memory, or none is needed. */
    void (*begun)(fv_request *r);
    /* Tokens of the prompt, which the request asks for: event `number`, from 0 on. Borrowed. */
    void (*prompt)(fv_request *r, uint32_t number, fv_prompt_message *t);
    /* The next tokens of the answer; index and number are checked. Borrowed. */
    void (*tokens)(fv_request *r, fv_tokens_message *t);
    /* A worker has finished its part; fv_attempt_is_complete says whether both have. */
    void (*finished)(fv_request *r);
    /* The attempt has failed, as in *f and fv_last_error, and has released its workers. */
    void (*failed)(fv_request *r, const fv_failure *f);
} fv_attempt_events;

typedef struct fv_attempt {
    fv_request *req; /* NULL: abandoned, or failed */
    fv_relay *relay;
    const fv_attempt_events *events;
    struct fv_attempt *next_over;
    fv_worker_call prefill, decode;
    fv_reservation p, d;
    uint64_t bytes_bound;            /* of KV, from Begun */
    fv_kept hoped;                   /* what the prefill worker was thought to keep */
    uint32_t n_replay;               /* tokens that the client had before this attempt */
    fv_arena arena;                  /* owns the workers' messages that are kept */
    const fv_ticket_message *ticket; /* from Begun */
    uint32_t n_prompt;               /* tokens of the prompt, from Begun */
    bool thinks, thought;     /* the answer begins inside its reasoning, behind it; likewise */
    uint32_t n_prompt_cached; /* of these, tokens that were kept from an earlier prompt */
    uint32_t n_prompt_event;  /* events of the prompt's tokens that it has brought */
    bool first_done;          /* FirstToken has come, or is not expected */
    bool had_ended;           /* the answer had ended before this attempt */
    Fovea__Inference__V1__FinishReason finish; /* set: the answer ended with or before FirstToken */
    bool decoding;                             /* the decode worker has sent a token */
    bool prefill_done;                         /* the prefill worker is not needed any more */
    bool waited_for_memory;                    /* started without memory at the decode worker */
    double token_s; /* when the last token came; 0: do not measure the time to the next */
    const Fovea__Inference__V1__Report *report;     /* the prefill worker's half, if it came */
    const Fovea__Inference__V1__Finished *finished; /* the decode worker's Finished, if it came */
} fv_attempt;

/* Opens an attempt without workers. FV_ENOMEM. */
fv_status fv_attempt_open(fv_request *r, const fv_attempt_events *events, fv_attempt **out);

/* Sets what a request needs at a decode worker, in the fields from `bytes` to `reserve_all`. */
void fv_attempt_need(const fv_request *r, fv_constraints *c);

/* Reserves both workers and starts with a prefill. No decode worker (NULL) for an answer of one token. */
fv_status fv_attempt_start(fv_attempt *a, fv_registered_worker *p, fv_registered_worker *d);

/* Continues a conversation kept at d. */
fv_status fv_attempt_continue(fv_attempt *a, fv_registered_worker *d);

/* Gives an attempt up: releases its reservations and cancels its calls. Nothing is reported any more. Fine if
 * it has failed before. */
void fv_attempt_abandon(fv_attempt *a);

/* Resumes reading from the decode worker when the client reads again. */
void fv_attempt_resume(fv_attempt *a);

/* Whether both workers have finished: the answer is complete. */
bool fv_attempt_is_complete(const fv_attempt *a);

/* Whether the attempt waits for memory at its decode worker, which has granted none yet. */
bool fv_attempt_waits(const fv_attempt *a);

/* Whether w is at work on this attempt: its prefill worker until the first token, its decode worker from the
 * call for tokens on; not while its last report names other requests only. */
bool fv_attempt_works_at(const fv_attempt *a, const fv_registered_worker *w);

/* Reports the loss of w (on_gone in router/registry.h), if that ends the attempt; w may be neither of its two. */
void fv_attempt_lose(fv_attempt *a, const fv_registered_worker *w);

/* Treats a hung worker, or one where this request hangs, as lost although it is still connected. */
void fv_attempt_hang(fv_attempt *a, const fv_registered_worker *w);

/* Frees the attempts that are over, after an event. */
void fv_attempts_free_over(fv_relay *relay);

#endif
