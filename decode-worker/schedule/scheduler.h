#ifndef FOVEA_DECODE_WORKER_SCHEDULE_SCHEDULER_H
#define FOVEA_DECODE_WORKER_SCHEDULE_SCHEDULER_H

/* SCHEDULER: from a ticket, or from a kept conversation, to the end of the answer, for all requests
 * of a worker.
 *
 *   fv_scheduler_add --> WAITING -------> READY -------> RUNNING -------> FINALIZING ---> over
 *                         |  committed    |   a slot    |  ^  |  last token    |  done
 *                         |  and attached |   is its    |  |  |                |
 *                         |               |   share     v  |  |                |
 *                         |               |          PAUSED   |                |
 *                         |               |             |     '- it failed, or is not kept --> over
 *                         '---------------'-------------'----------------------'--> over, by drop,
 *                                                                                   without a callback
 *
 *   WAITING   its hand-off is under way: whenever hand-offs have changed, the ticket is tried again
 *   READY     it has its conversation, and memory for its tokens, and waits for a slot in the batch
 *   RUNNING   it is in the batch
 *   PAUSED    it has run and gave its slot away, because another tenant was due it (shares.h) or its
 *             reader does not read (fv_scheduler_hold). It keeps all that it has: KV, which still
 *             counts, sampling and eviction. So its tokens are the same as if it had not paused
 *   FINALIZING  it is complete and to be kept, and its text keys are compressed again (recompress.h):
 *             one layer between two steps, so other requests wait for no more
 *
 * Slots are shared by tenant, before every step; among the answers of a tenant the oldest run.
 *
 * A follow-up skips WAITING. Until it runs, its conversation is unchanged and stays kept if the
 * request ends; from then on the conversation ends with it, unless the answer is complete and is to
 * be kept.
 *
 * The computing thread. */
#include "common/pulse.h"
#include "decode-worker/conversations/conversations.h"
#include "decode-worker/conversations/follow_up.h"
#include "decode-worker/conversations/recompress.h"
#include "decode-worker/receive/receive.h"
#include "decode-worker/schedule/batch.h"
#include "decode-worker/schedule/rerun.h"
#include "model/engine.h"

typedef enum fv_answer_phase {
    FV_ANSWER_NONE = 0,
    FV_ANSWER_WAITING,
    FV_ANSWER_READY,
    FV_ANSWER_RUNNING,
    FV_ANSWER_PAUSED,
    FV_ANSWER_FINALIZING
} fv_answer_phase;

/* What an answer came to. */
typedef struct fv_answer_report {
    fv_finish finish;
    fv_refusal refusal;                      /* of its ticket, or of more memory */
    int32_t n_generated;                     /* of the whole answer */
    size_t bytes_visual_end, bytes_text_end; /* held at the end, */
    size_t bytes_tables_end;                 /* and beside them (fv_kv_packed_tables) */
    uint64_t entries_evicted;                /* that went as the answer grew */
    double s_attach, s_decode;
    double attached_s, ended_s;        /* it had its KV; its last token came. By fv_clock_s */
    fv_recompress_report recompressed; /* {0}: nothing was */
    char policy[FV_POLICY_TEXT_MAX];   /* the conversation's own */

    /* A follow-up's; else 0, because the prefill worker reports it. */
    int32_t n_prompt;                /* rows that ran before the first token: the new ones, and the
                                      * last answer's last token */
    size_t bytes_raw;                /* of all its rows, had none been dropped or packed */
    size_t bytes_visual, bytes_text; /* held when they had run */
    double s_prefill;

    double keep_s;            /* for how long it is kept; 0: it is not */
    uint8_t conversation[16]; /* by this name */
} fv_answer_report;

/* Made and owned by the caller: it must stay until `over` was called or it was dropped. The same
 * holds for what it points to. */
typedef struct fv_answer {
    const char *request_id; /* "": none */
    const char *tenant;     /* whose it is; NULL: "" */
    uint64_t tenant_bytes;  /* of the pool, that all of the tenant's may have; 0: no limit */
    const char *share_name; /* with whom it shares a part of the slots; NULL or "": the tenant */
    double weight;          /* of that part; 0: 1 */
    bool follows;           /* a conversation that is kept; else a hand-off */
    fv_ticket ticket;
    int32_t n_replay; /* tokens before the first one of the hand-off, at the prompt's end */
    const uint32_t *replay;
    uint8_t conversation[16];
    fv_prompt_form prompt; /* that goes on with it */
    fv_sampling sampling;  /* a hand-off brings its own; alternatives are always asked for here */
    double keep_s;         /* 0: nothing is kept afterwards */
    int32_t max_tokens;    /* of the whole answer */
    int32_t n_stop;
    const char *const *stop; /* [n_stop] */
    bool ignore_eos, digests;
    int32_t n_forced;
    const int32_t *forced; /* [n_forced] as fv_generation_options' */
    /* Of a hand-off whose first token is the prompt's last: that token runs again, on what is held,
     * and the answer's first token comes from it (rerun.h). */
    bool first_held;
    /* private */
    struct fv_answer *next;
    fv_answer_phase phase;
    fv_status failed;
    fv_refusal refusal;       /* of its ticket, or of more memory */
    fv_conversation *session; /* in use; the table's */
    fv_generation *seq;
    int32_t n_held; /* rows of the sequence that have run before it joins */
    int32_t n_run;  /* and that have run by now, as of its last token or pause */
    struct fv_share *share;
    bool held; /* its reader does not read */
    double t_attached, t_joined, t_token, t_last;
    size_t bytes_visual, bytes_text; /* at the first token */
    uint64_t rows_gone;              /* that the answers before it had let go */
    int32_t at_work;                 /* its place in the worker's pulse; 0: none */
    fv_rerun rerun;
    fv_recompress again; /* while it is FINALIZING */
} fv_answer;

typedef struct fv_scheduler_hooks {
    /* A token was chosen: number `index` of the answer, from logits of this digest (0: not asked
     * for). Everything is borrowed for the call. A failure ends the answer. */
    fv_status (*token)(fv_answer *x, uint32_t index, const fv_batch_event *e, uint64_t digest);
    /* The answer is over, well or (fv_last_error says why) not. Last. */
    void (*over)(fv_answer *x, fv_status st, const fv_answer_report *r);
} fv_scheduler_hooks;

typedef struct fv_scheduler fv_scheduler; /* opaque */

/* Borrows engine, receiver and conversations; hooks are copied. At most batch_max run at a time,
 * and at most prompt_tokens rows of their prompts in a step. */
fv_status fv_scheduler_open(const fv_engine *engine, fv_receiver *receiver,
                            fv_conversations *conversations, int32_t batch_max,
                            int32_t prompt_tokens, const fv_scheduler_hooks *hooks,
                            fv_scheduler **out);
void fv_scheduler_close(fv_scheduler *a); /* none is left; NULL is fine */

/* Begins an answer; `over` may be called before this returns. */
void fv_scheduler_add(fv_scheduler *a, fv_answer *x);

/* Ends one, in whatever phase, with everything it holds, its hand-off included. One that is over
 * already is fine. */
void fv_scheduler_drop(fv_scheduler *a, fv_answer *x);

/* Its reader does not read (true), or does again: while it is held it has no slot. Not while a step
 * runs. One that is over is fine. */
void fv_scheduler_hold(fv_scheduler *a, fv_answer *x, bool held);

/* A hand-off was committed or has ended. */
void fv_scheduler_changed(fv_scheduler *a);

/* Shares the slots, and a step for all that run. True: call again at once, there is more to do. */
bool fv_scheduler_step(fv_scheduler *a);

int32_t fv_scheduler_count(const fv_scheduler *a, fv_answer_phase phase);
int32_t fv_scheduler_unread(const fv_scheduler *a);     /* PAUSED answers that are held */
uint64_t fv_scheduler_preempted(const fv_scheduler *a); /* slots that have changed hands so far */

/* Those that run have a place there from now on. Borrowed; before the first is added. */
void fv_scheduler_follow(fv_scheduler *a, fv_pulse *pulse);

fv_batch *fv_scheduler_batch(fv_scheduler *a); /* borrowed; for a probe, while none runs */

#endif
