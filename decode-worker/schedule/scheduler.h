#ifndef FOVEA_DECODE_WORKER_SCHEDULE_SCHEDULER_H
#define FOVEA_DECODE_WORKER_SCHEDULE_SCHEDULER_H

/* SCHEDULER: takes each request of a worker from its ticket, or from a kept conversation, to the end
 * of its answer.
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
 *   WAITING   the hand-off is under way: whenever hand-offs have changed, the ticket is tried again
 *   READY     the answer has its conversation, and memory for its tokens, and waits for a slot in the batch
 *   RUNNING   the answer is in the batch
 *   PAUSED    the answer has run and gave its slot away, because another tenant was due it (shares.h) or
 *             its reader does not read (fv_scheduler_hold). It keeps its state: KV, which still counts,
 *             sampling and eviction. So its tokens are the same as if it had not paused
 *   FINALIZING  the answer is complete and to be kept, and its text keys are compressed again
 *             (recompress.h): one layer between two steps, so other requests wait for no more
 *
 * Slots are shared by tenant, before every step; among the answers of a tenant the oldest run.
 *
 * An answer grows beyond the memory that it was granted; memory.h says who gives way when there is none. A PAUSED
 * answer that waits for memory is `starved`. A preempted one is over, refused with PREEMPTED.
 *
 * A follow-up skips WAITING. Until it runs, its conversation is unchanged and stays kept if the
 * request ends; from then on the conversation ends with the request, unless the answer completes and
 * is to be kept.
 *
 * For the computing thread. */
#include "common/pulse.h"
#include "decode-worker/conversations/conversations.h"
#include "decode-worker/conversations/follow_up.h"
#include "decode-worker/conversations/recompress.h"
#include "decode-worker/receive/receive.h"
#include "decode-worker/schedule/batch.h"
#include "decode-worker/schedule/lengths.h"
#include "decode-worker/schedule/rerun.h"
#include "decode-worker/speculate/draft_model.h"
#include "model/engine.h"

typedef enum fv_answer_phase {
    FV_ANSWER_NONE = 0,
    FV_ANSWER_WAITING,
    FV_ANSWER_READY,
    FV_ANSWER_RUNNING,
    FV_ANSWER_PAUSED,
    FV_ANSWER_FINALIZING
} fv_answer_phase;

/* The result of an answer. */
typedef struct fv_answer_report {
    fv_finish finish;
    fv_refusal refusal;                      /* why its ticket or more memory was refused */
    int32_t n_generated;                     /* tokens of the whole answer */
    size_t bytes_visual_end, bytes_text_end; /* KV held at the end, */
    size_t bytes_tables_end;                 /* and its tables (fv_kv_packed_tables) */
    uint64_t entries_evicted;                /* KV entries evicted during this answer */
    double s_attach, s_decode;
    double attached_s, ended_s; /* times, by fv_clock_s: its KV was there; its last token came */
    fv_recompress_report recompressed; /* {0}: nothing was */
    uint64_t n_drafted, n_drafts_kept; /* as fv_speculation's */
    double s_drafts_saved;
    char policy[FV_POLICY_TEXT_MAX]; /* the conversation's own */

    /* Set for a follow-up only; otherwise 0, because the prefill worker reports them. All but bytes_raw also where the end
     * of a prompt has run here. */
    int32_t n_prompt;                /* rows that ran before the first token: the new ones, and the
                                      * last answer's last token */
    size_t bytes_raw;                /* KV of all its rows, had none been dropped or packed */
    size_t bytes_visual, bytes_text; /* KV held after those rows had run */
    double s_prefill;

    double keep_s;            /* for how long the conversation is kept; 0: it is not */
    uint8_t conversation[16]; /* its name then */
} fv_answer_report;

/* An answer. Owned by the caller, who keeps it, and what it points to, until `over` is called or the
 * answer is dropped. */
typedef struct fv_answer {
    const char *request_id; /* "": none */
    const char *tenant;     /* owner of the request; NULL: "" */
    uint64_t tenant_bytes;  /* bytes of the pool for all requests of the tenant; 0: no limit */
    const char *share_name; /* the share of slots that it belongs to; NULL or "": the tenant's */
    double weight;          /* of that share; 0: 1 */
    bool follows;           /* it continues a kept conversation; otherwise a hand-off */
    const char *model;      /* of a conversation: the name in the request; NULL: "" */
    fv_ticket ticket;
    int32_t n_replay; /* tokens before the first one of the hand-off, at the prompt's end */
    const uint32_t *replay;
    uint8_t conversation[16];
    fv_prompt_form prompt; /* the follow-up's */
    fv_sampling sampling;  /* a follow-up's; a hand-off brings its own, except n_logprobs */
    double keep_s;         /* how long to keep the conversation afterwards; 0: not at all */
    int32_t max_tokens;    /* of the whole answer */
    int32_t n_stop;
    const char *const *stop; /* [n_stop] */
    fv_token_rules rules;
    bool ignore_eos, digests, show_special, include_stop, continue_text;
    int32_t n_forced;
    const int32_t *forced; /* [n_forced] as fv_generation_options' */
    bool speculate;        /* run drafts, where its store and policy allow (drafts.h) */
    const char *
        prediction; /* [n_prediction] text that is expected in the answer, to draft from; NULL: none */
    size_t n_prediction;
    /* The hand-off has no first token of the answer: the prompt's last token runs again on the KV as
     * held, and the answer's first token is chosen from that (rerun.h). */
    bool first_held;
    /* private */
    struct fv_answer *next;
    fv_answer_phase phase;
    fv_error failed;          /* of its token in this step */
    fv_refusal refusal;       /* why its ticket or more memory was refused */
    fv_conversation *session; /* in use; owned by the table of conversations */
    fv_generation *seq;
    int32_t n_held; /* rows of the sequence that have run before it joins */
    int32_t n_run;  /* rows that had run at its last token or pause */
    struct fv_share *share;
    fv_wire_link *link; /* [n_link] of a hand-off's prompt, owned; NULL: nothing is kept of it */
    uint32_t n_link;
    bool begins;      /* the end of the hand-off's prompt runs here, and gives the first token */
    bool held;        /* its reader does not read */
    bool whole;       /* all its memory was reserved at first */
    bool starved;     /* PAUSED, and there is no memory for its next row */
    bool asked;       /* memory.h */
    int32_t rows_end; /* rows of the sequence that have memory */
    double arrived_s; /* when it reached its router, by fv_clock_s; a hand-off's */
    double t_attached, t_joined, t_token, t_last;
    size_t bytes_visual, bytes_text; /* at the first token */
    uint64_t rows_gone;              /* KV entries evicted during earlier answers */
    int32_t at_work;                 /* its slot in the worker's pulse; 0: none */
    fv_rerun rerun;
    struct fv_lookup *lookup; /* NULL: it runs no drafts */
    fv_drafter *drafter;      /* the draft model's; NULL: none */
    fv_speculation spec;
    fv_recompress again; /* while it is FINALIZING */
} fv_answer;

typedef struct fv_scheduler_hooks {
    /* Called for each token chosen: number `index` of the answer, from logits with this digest (0: not
     * asked for). Everything is borrowed for the call. A failure ends the answer. */
    fv_status (*token)(fv_answer *x, uint32_t index, const fv_batch_event *e, uint64_t digest);
    /* Called last, when the answer is over; if it failed, fv_last_error says why. */
    void (*over)(fv_answer *x, fv_status st, const fv_answer_report *r);
} fv_scheduler_hooks;

typedef struct fv_scheduler fv_scheduler; /* opaque */

/* Opens a scheduler of at most batch_max running answers and prompt_tokens prompt rows a step. Borrows
 * engine, receiver and conversations; copies the hooks. */
fv_status fv_scheduler_open(const fv_engine *engine, fv_receiver *receiver,
                            fv_conversations *conversations, int32_t batch_max,
                            int32_t prompt_tokens, const fv_scheduler_hooks *hooks,
                            fv_scheduler **out);
void fv_scheduler_close(fv_scheduler *a); /* when it has no answers; NULL is fine */

/* Begins an answer; `over` may be called before this returns. */
void fv_scheduler_add(fv_scheduler *a, fv_answer *x);

/* Ends an answer in any phase and frees everything that it holds, its hand-off included. Does nothing if
 * the answer is over. */
void fv_scheduler_drop(fv_scheduler *a, fv_answer *x);

/* Holds an answer whose reader does not read, or (false) releases it. A held answer has no slot. Not
 * for use during a step. Does nothing if the answer is over. */
void fv_scheduler_hold(fv_scheduler *a, fv_answer *x, bool held);

/* Notes that a hand-off was committed or has ended: the next step tries the tickets again. */
void fv_scheduler_changed(fv_scheduler *a);

/* Shares the slots and runs one step of all running answers. True: there is more to do, call again at
 * once. */
bool fv_scheduler_step(fv_scheduler *a);

int32_t fv_scheduler_count(const fv_scheduler *a, fv_answer_phase phase);
int32_t fv_scheduler_unread(const fv_scheduler *a);     /* PAUSED answers that are held */
uint64_t fv_scheduler_preempted(const fv_scheduler *a); /* slots that have changed hands so far */

/* Whether an answer waits for memory of the pool: nothing else should be given any. */
bool fv_scheduler_is_short(const fv_scheduler *a);
uint64_t fv_scheduler_preempted_for_memory(const fv_scheduler *a); /* answers so far */

/* Counts the lengths of answers in `lengths` from now on. Borrowed. */
void fv_scheduler_measure(fv_scheduler *a, fv_lengths *lengths);

/* Keeps prompts with their answers in `prefixes` from now on. Borrowed. */
void fv_scheduler_keep(fv_scheduler *a, fv_prefixes *prefixes);

/* Answers that begin from now on may draft with this model (drafts.h). Borrowed; NULL: none. */
void fv_scheduler_draft_with(fv_scheduler *a, fv_draft_model *m);

/* Lists running answers in `pulse` from now on. Borrowed. Call before the first answer is added. */
void fv_scheduler_follow(fv_scheduler *a, fv_pulse *pulse);

fv_batch *fv_scheduler_batch(fv_scheduler *a); /* borrowed; for a probe, while no answer runs */

#endif
