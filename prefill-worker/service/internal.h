#ifndef FOVEA_PREFILL_WORKER_SERVICE_INTERNAL_H
#define FOVEA_PREFILL_WORKER_SERVICE_INTERNAL_H

/* THE PREFILL WORKER's state, shared by the files of this folder only.
 *
 * A TASK is one request. The loop thread creates and frees it; in between it belongs to
 * the computing thread, except the fields under "loop thread", and its images
 * while they are on the reading lines.
 *
 *     posted --> QUEUED --prepare--> OPENING --granted--> READING --images--> READY --> RUNNING
 *                                       |  refused                                           |  prefilled
 *                                       v                                                    v
 *                                     over <--first token was the last, or <------------ EXPORTING
 *                                                 all KV is received
 *
 *     QUEUED    the task is in the queue and holds nothing else
 *     OPENING   prompt and plan are ready; memory was requested at the decode worker
 *     READING   images are on the reading lines: to be hashed, before OPENING; or to be read, when memory is granted
 *               or none is needed
 *     WAITING   another task computes most of what this one lacks (task_prefix.c); READY when that is kept
 *     FETCHING  segments of its prompt are on their way from a tier (task_fetch.c); READY when they are here
 *     READY     everything is ready; images are encoded, one by one
 *     RUNNING   the task is in a batch that is computed; KV is sent meanwhile
 *     EXPORTING  the first token was sent; the last KV is on its way
 *               a task that leaves the rest of its prompt to the decode worker (task_rest.c) goes there from OPENING
 *     over      everything is freed, the outcome is in fault and refusal
 *
 * Images in the cache are not read. A task whose images are condensed is READING and READY before
 * OPENING, because their number of tokens determines the memory.
 *
 * A task without a hand-off (one token, no decode worker) skips OPENING. */
#include <stdatomic.h>

#include "common/arena.h"
#include "common/jobs.h"
#include "common/liveness.h"
#include "handoff.pb-c.h"
#include "handoff/transport.h"
#include "prefill-worker/job/prefix.h"
#include "prefill-worker/service/reading.h"
#include "prefill-worker/service/worker.h"
#include "serving/worker/forms.h"
#include "telemetry/otlp/spans.h"

typedef Fovea__Handoff__V1__PrefillRequest fv_prefill_message;
typedef Fovea__Inference__V1__GenerateRequest fv_generate_message;
typedef Fovea__Inference__V1__Report fv_report_message;

typedef enum fv_task_state {
    FV_TASK_QUEUED,
    FV_TASK_OPENING,
    FV_TASK_READING,
    FV_TASK_WAITING,
    FV_TASK_FETCHING,
    FV_TASK_READY,
    FV_TASK_RUNNING,
    FV_TASK_EXPORTING,
} fv_task_state;

/* The connection to one decode worker. For the loop thread. */
typedef struct fv_decode_peer {
    struct fv_decode_peer *next;
    char *address; /* owned */
    fv_transport *transport;
    int32_t n_task; /* tasks that use it */
} fv_decode_peer;

/* A task's part in the cache of prefixes. */
typedef struct fv_task_prefix {
    bool taken;          /* what it computes is decided; others may wait for it */
    bool waited;         /* another task has computed for it, */
    int32_t rows;        /* and the cache had so many of its rows before */
    bool in_vain;        /* the cache had no room for what another task has computed */
    double seconds_row;  /* that a row took in its batch */
    double seconds_left; /* that computing `left` rows would have taken here, about */
    int32_t
        left; /* rows that the decode worker has; it computes those after them. 0: this worker does */
} fv_task_prefix;

typedef struct fv_errand fv_errand; /* task_fetch.c */

/* Segments of its prompt on their way from tiers into the cache of prefixes. */
typedef struct fv_task_fetch {
    int32_t tier;                       /* the next to be asked */
    bool away;                          /* a reading thread has the errand */
    fv_errand *errand;                  /* or NULL */
    int32_t rows[FV_PREFILL_TIERS_MAX]; /* rows of the prompt that came from each tier, */
    int32_t end;                        /* all before this one */
} fv_task_fetch;

/* The reading of one tier, and whether that answers in time. */
typedef struct fv_tier_line {
    fv_jobs *reads;              /* its thread */
    int32_t n_overdue;           /* errands that tasks no longer wait for */
    double rest_s, rest_until_s; /* it has hung, and is not asked until then; 0: it has not */
} fv_tier_line;

/* Images on their way through the reading lines. */
typedef struct fv_task_images {
    fv_unit unit;   /* reads the next image */
    fv_job back;    /* returns them to the computing thread */
    bool away;      /* on a line: the image fields of `prefill` belong to a reading thread */
    bool hashing;   /* to be hashed, not read */
    fv_error fault; /* why an image could not be read */
} fv_task_images;

typedef struct fv_task {
    fv_prefill_worker *worker;
    fv_arena arena;
    const fv_prefill_message *msg; /* in the arena */
    fv_job job;                    /* brings the task to the computing thread */
    fv_form_unit form;             /* takes `job` there through the thread that compiles grammars */
    fv_rpc_op begun, first, over;  /* events for the loop thread: granted; first token; the end */
    atomic_bool cancelled;         /* the computing thread should end the task */
    double deadline_s;             /* of its call; 0: none */
    bool probe;                    /* the worker's own task, which the loop thread never sees */

    /* loop thread */
    bool call_alive;   /* on_end has not run yet */
    bool posted;       /* the computing thread has the task; `over` has not run yet */
    fv_rpc_call *call; /* NULL: nothing can be sent any more */
    fv_caller who;     /* the caller */
    fv_span span;      /* set before the task is posted */
    fv_decode_peer *peer;
    double born_s, until_s; /* arrival at the router; deadline. Set before the task is posted */

    /* computing thread */
    struct fv_task *next;
    fv_task_state state;
    fv_fair_flow *flow; /* the tenant's, on the computing thread */
    bool picked;        /* picked for the next step */
    fv_prefill_job prefill;
    uint64_t n_pixels; /* pixels of its images, counted in pixels_held; 0: none, or all were read */
    fv_task_images images;
    fv_task_prefix prefix;
    fv_task_fetch fetch;
    fv_error lost;     /* why the hand-off or packing failed while the batch was computed */
    size_t bytes_peak; /* most KV that it holds here */
    fv_export *ship;
    fv_transport *transport; /* borrowed from the peer; NULL: no hand-off */
    bool begun_said;
    int32_t at_work; /* its slot in `pulse`; 0: none */
    double arrived_s, opened_s, reading_s, read_s, encoding_s, began_s, sending_s, prefilled_s,
        sent_s;

    /* outcome: the loop thread reads it when notified, as it reads `prefill`: the token with `first`, the
     * rest with `over` */
    fv_ticket ticket;        /* with `begun` */
    uint64_t bytes_bound;    /* when memory was requested */
    uint64_t bytes_reserved; /* with `begun` */
    fv_error fault;          /* with `over` */
    fv_refusal refusal;
    fv_export_report sent;
    fv_arena told_arena; /* of these events, which the loop thread sends with `first` */
    Fovea__Inference__V1__PromptTokens *told; /* [n_told] */
    size_t n_told;
} fv_task;

/* The worker's own tiny request, and when it is due. It has its own pool: the requests' pool may be full
 * without a fault, and the probe's bytes must not count there. */
typedef struct fv_prefill_probe {
    fv_probe_clock clock;
    fv_kv_pool *pool;
    bool under_way;
    fv_task task;
    int32_t id; /* its prompt, one token */
} fv_prefill_probe;

/* A running unit of work: a batch, or an image that is encoded. */
typedef struct fv_turn {
    double cost;
    double finish; /* largest finish tag of its tenants (fair.h) */
    size_t room;   /* bytes of the pool beyond what running units may need */
} fv_turn;

/* State of the computing thread. */
typedef struct fv_prefill_line {
    const fv_engine *engine; /* borrowed */
    fv_kv_pool *pool;
    fv_image_cache *cache;
    fv_prefix_cache *prefixes;
    fv_kept_log *kept;    /* of prefixes, for the routers */
    double seconds_row;   /* that a row of a prompt takes, about; 0: not known yet */
    size_t bytes_storing; /* of segments on their way to the tier */
    float *logits;        /* [batch, vocab] */
    fv_task *first, **tail;
    fv_fair fair;      /* costs are about multiply-adds */
    int32_t n_running; /* running units, nested in one another (batch.c) */
    fv_turn turn;      /* the innermost unit */
    bool encoding;     /* one of the units is an image */
    fv_prefill_probe probe;
} fv_prefill_line;

struct fv_prefill_worker {
    fv_prefill_worker_options opt;
    fv_jobs *jobs;
    fv_reading *reading;
    fv_forms *forms;
    fv_tier_line tier_line[FV_PREFILL_TIERS_MAX]; /* but for the threads, of the computing thread */
    fv_jobs *tier_writes;                         /* NULL: no tiers */
    atomic_bool tier_closing;
    double tier_told_s; /* of the writing thread: when it last logged a failure */
    fv_prefill_line line;
    fv_job wake; /* makes the computing thread look at its tasks */
    atomic_bool woken;
    /* for other threads, which read it while the computing thread works */
    atomic_int n_started;
    _Atomic uint64_t bytes_held, entries_in, pixels_held;
    _Atomic uint64_t prefix_bytes, prefix_given_up; /* of the cache of prefixes */
    atomic_ullong n_good, n_bad;                    /* batches, for fv_vital_signs */
    atomic_ullong n_read;                           /* images read */
    fv_pulse *pulse;

    /* loop thread */
    fv_peers *pairs;                             /* NULL: none */
    uint64_t bytes_grpc, bytes_nccl, n_fallback; /* sums over completed hand-offs */
    fv_decode_peer *peers;
    int32_t n_peer, n_task;
    uint64_t n_done, n_failed, n_tokens;
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

/* worker.c: count a request in and out; FV_EBUSY if there are too many. On the loop thread. */
fv_status fv_prefill_worker_enter(fv_prefill_worker *w);
void fv_prefill_worker_leave(fv_prefill_worker *w);

/* tokenize.c: calls that need only the tokenizer. */
#define FV_TOKENIZE_PATH "/fovea.handoff.v1.Prefill/Tokenize"
#define FV_DETOKENIZE_PATH "/fovea.handoff.v1.Prefill/Detokenize"
#define FV_GET_TOKENIZER_PATH "/fovea.handoff.v1.Prefill/GetTokenizer"
enum { FV_TOKENIZE_BYTES_MAX = 4 << 20 };
fv_status fv_tokenize_on_message(fv_rpc_call *c, grpc_byte_buffer *message);
fv_status fv_detokenize_on_message(fv_rpc_call *c, grpc_byte_buffer *message);
fv_status fv_get_tokenizer_on_message(fv_rpc_call *c, grpc_byte_buffer *message);
void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end);

/* task.c: turns a message into a prompt, a plan and a request for memory. If the task is READING after
 * either of the first two functions, its images come first; call the second one after they are encoded, or the third
 * one after they are hashed.
 * fv_task_release frees everything, also after a failure; with `keep`, a completed hand-off
 * stays. */
fv_status fv_task_prepare(fv_task *t);
fv_status fv_task_prepare_rest(fv_task *t);
fv_status fv_task_ask_for_memory(fv_task *t);
void fv_task_release(fv_task *t, bool keep);
void fv_task_fini(fv_task *t); /* frees the rest, which the report needs */

/* prompt_tokens.c: makes the events that return the prompt's tokens, if the request asks for them. FV_EINVAL:
 * they are too large. */
enum { FV_PROMPT_BYTES_MAX = 4 << 20 };
fv_status fv_task_tell_prompt(fv_task *t);

/* task_images.c: turns images into embeddings. */

/* Counts the pixels of a request by the headers of its images, and takes them from the worker's limit.
 * FV_EINVAL: an image cannot be read, or has too many; FV_EBUSY: too many wait to be decoded. On the loop thread. */
fv_status fv_task_take_pixels(fv_task *t);
/* Gives them back; can be called again. On the thread that has the task. */
void fv_task_give_pixels(fv_task *t);

/* Sends the images that the cache does not have to the reading lines; the task is READING then and must
 * stay until they are back (images.away). fv_task_images_read then returns the result. */
fv_status fv_task_read_images(fv_task *t);
fv_status fv_task_images_read(fv_task *t);

/* Hashes the images on a reading line, `bytes` of them; the task is READING then, as above. fv_task_images_hashed
 * returns the result. */
void fv_task_hash_images(fv_task *t, uint64_t bytes);
fv_status fv_task_images_hashed(fv_task *t);

/* task_prefix.c: what is kept of the prompt. */

/* Names the prompt's segments, if the task may use what is kept. It is READING afterwards if its images must be hashed
 * first: call this again when they are back. */
fv_status fv_task_name_prompt(fv_task *t);

/* Decides what the task computes, between the grant and the images. It is WAITING afterwards if another task computes
 * much of what it lacks: call this again when fv_task_awaits is false. */
fv_status fv_task_take_prefix(fv_task *t);
bool fv_task_awaits(const fv_task *t);

/* Keeps what it has computed. */
void fv_task_keep_prefix(fv_task *t);

/* task_rest.c: whether the decode worker may be asked to compute the end of the prompt; after the grant, whether it can, which
 * is noted in prefix.left; and leaves that to it, with EXPORTING. */
bool fv_task_offers_rest(const fv_task *t);
bool fv_task_may_leave_rest(fv_task *t);
fv_status fv_task_leave_rest(fv_task *t);

/* Tokens of the prompt that are not computed, as they were kept here or, then, on the decode worker. */
int32_t fv_task_cached(const fv_task *t);

/* task_fetch.c: what tiers beyond the cache keep of the prompt. */

/* Asks the next tier for segments that the cache lacks. True: the task is FETCHING; when fetch.away is false again, call
 * the second one; if that returns true, the task is FETCHING on, and otherwise the first one again. */
bool fv_task_fetch_prefix(fv_task *t);
bool fv_task_fetched(fv_task *t);
void fv_task_drop_fetch(fv_task *t); /* goes on without what has not come; again is fine */

/* While fetch.away is set: whether the tier has not answered in time. Then the task goes on without it: call
 * fv_task_fetch_prefix. */
bool fv_task_fetch_is_overdue(fv_task *t);
double fv_fetches_due_s(const fv_prefill_line *l); /* seconds until a task's is; below 0: never */

/* task_tier.c */
bool fv_tier_on_host(const fv_buf *b);
fv_seal_head fv_tier_head_of(const fv_prefix_part *p);

/* Sends the segments of the task's prompt that the cache has to the tiers that lack them. */
void fv_task_store_prefix(fv_task *t);

/* Start the threads that read from and write to the tiers; and stop them, while the computing thread runs: nothing is
 * fetched any more, and what waits to be written is not. */
fv_status fv_tier_threads_open(fv_prefill_worker *w);
void fv_tier_threads_close(fv_prefill_worker *w);

/* Encode all images, or the next one. The task is READING afterwards if the cache has dropped one
 * meanwhile. The first does nothing if all are encoded. */
fv_status fv_task_encode(fv_task *t);
fv_status fv_task_encode_next(fv_task *t);

/* Returns the name of the task's share of the worker: its tenant, or the share that its router names. */
const char *fv_task_share(const fv_task *t);

/* batch.c: does a unit of work for the tenant whose turn it is: encodes an image, or prefills a batch. A
 * step within a unit is for other tenants than the unit's. False: there is nothing to do now. */
bool fv_prefill_step(fv_prefill_worker *w);
void fv_prefill_while_encoding(void *worker); /* callback of fv_vision_between */

/* run.c: the computing thread. */

/* Removes a task from the queue and frees all that it holds; it belongs to the loop thread again. */
void fv_task_end(fv_task *t, fv_status st);
bool fv_task_wanted(const fv_task *t); /* neither cancelled nor past its deadline */
void fv_task_end_unwanted(fv_task *t);
void fv_task_post(fv_task *t, fv_rpc_op *op);    /* posts an event to the loop thread */
void fv_task_prepared(fv_task *t, fv_status st); /* moves on a task that was prepared with `st` */
uint64_t fv_task_layers_run(const void *worker); /* `shared` of tasks that compute */

/* Call between two passes of a batch: handles what has arrived meanwhile, and may run other tenants'
 * units (fv_prefill_step). */
void fv_prefill_line_between(fv_prefill_worker *w);

/* Enter the task into `pulse`, with `shared` as a part of its count, and remove it again. */
void fv_task_works(fv_task *t, uint64_t (*shared)(const void *worker));
void fv_task_waits(fv_task *t);

fv_status fv_prefill_line_open(fv_prefill_worker *w);
void fv_prefill_line_close(fv_prefill_worker *w); /* when its thread has ended or never started */
void fv_task_enqueue(fv_job *job);                /* `run` of a task's job */
double fv_prefill_line_work(void *worker);        /* `work` of fv_jobs_options */

/* probe.c: starts and ends the probe. */
fv_status fv_prefill_probe_open(fv_prefill_worker *w);
void fv_prefill_probe_close(fv_prefill_worker *w);
bool fv_prefill_probe_due(const fv_prefill_worker *w);
double
fv_prefill_probe_pause(const fv_prefill_worker *w); /* seconds until it is due; below 0: never */
void fv_prefill_probe_begin(fv_prefill_worker *w);
void fv_prefill_probe_over(fv_task *t);
void fv_prefill_count_good(fv_prefill_worker *w); /* counts a success, and delays the next probe */

/* report.c: makes this worker's half of the report of a task that is over. *out is in the
 * task's arena. */
fv_status fv_task_report(fv_task *t, fv_report_message **out);

/* record.c: records a successful task, whose report is `r`, in the worker's metrics. */
void fv_task_record(const fv_task *t, const fv_report_message *r);

/* trace.c: records the spans of a task that is over or was not posted; the second call does nothing. */
void fv_task_trace(fv_task *t, int code);

#endif
