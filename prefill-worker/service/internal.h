#ifndef FOVEA_PREFILL_WORKER_SERVICE_INTERNAL_H
#define FOVEA_PREFILL_WORKER_SERVICE_INTERNAL_H

/* Shared by the files of the worker only.
 *
 * A TASK is one request. The loop thread makes it and frees it; in between it belongs to
 * the computing thread, except for the fields under "loop thread", and for its images
 * while they are on the reading thread.
 *
 *     posted --> QUEUED --prepare--> OPENING --granted--> READING --images--> READY
 *                                       |  refused                                |  prefilled
 *                                       v                                         v
 *                                     over <--first token was the last, or <-- EXPORTING
 *                                                 all KV is received
 *
 *     QUEUED    is in the queue, holds nothing else
 *     OPENING   prompt and plan are ready; memory was requested at the decode worker
 *     READING   memory is granted, or none is needed; its images are on the reading thread
 *     READY     everything is ready; while its batch is computed, KV is sent
 *     EXPORTING  the first token was sent; the last KV is on its way
 *     over      everything is freed, the outcome is in fault and refusal
 *
 * Images in the cache are not read. Those that are condensed are read before OPENING, because
 * their number of tokens determines the memory.
 *
 * A task without a hand-off (one token, no decode worker) skips OPENING. */
#include <stdatomic.h>

#include "common/arena.h"
#include "common/jobs.h"
#include "common/liveness.h"
#include "handoff.pb-c.h"
#include "handoff/transport.h"
#include "prefill-worker/job/job.h"
#include "prefill-worker/service/worker.h"
#include "telemetry/otlp/spans.h"

typedef Fovea__Handoff__V1__PrefillRequest fv_prefill_message;
typedef Fovea__Inference__V1__GenerateRequest fv_generate_message;
typedef Fovea__Inference__V1__Report fv_report_message;

typedef enum fv_task_state {
    FV_TASK_QUEUED,
    FV_TASK_OPENING,
    FV_TASK_READING,
    FV_TASK_READY,
    FV_TASK_EXPORTING,
} fv_task_state;

/* The way to one decode worker. Loop thread. */
typedef struct fv_decode_peer {
    struct fv_decode_peer *next;
    char *address; /* owned */
    fv_transport *transport;
    int32_t n_task; /* that go there */
} fv_decode_peer;

/* Images on their way through the reading thread. */
typedef struct fv_task_images {
    fv_job job, back; /* to the reading thread, and to the computing thread again */
    bool away;        /* it is there: what `prefill` says of images is the reading thread's then */
    fv_error fault;   /* of the one that could not be read */
} fv_task_images;

typedef struct fv_task {
    fv_prefill_worker *worker;
    fv_arena arena;
    const fv_prefill_message *msg; /* in the arena */
    fv_job job;                    /* its way to the computing thread */
    fv_rpc_op begun, first, over;  /* and back: memory is granted; a token; no more to come */
    atomic_bool cancelled;         /* cancelled: end it */
    double deadline_s;             /* of its call; 0: none */
    bool probe;                    /* the worker's own, which the loop thread never sees */

    /* loop thread */
    bool call_alive;   /* its on_end is yet to come */
    bool posted;       /* and `over` is yet to come */
    fv_rpc_call *call; /* NULL: nothing can be said any more */
    fv_caller who;     /* calls */
    fv_span span;      /* set before it is posted */
    fv_decode_peer *peer;
    double born_s, until_s; /* it came to its router; its time is over. Set before it is posted */

    /* computing thread */
    struct fv_task *next;
    fv_task_state state;
    fv_prefill_job prefill;
    uint64_t n_pixels; /* of its images, counted in pixels_held; 0: none, or they were read */
    fv_task_images images;
    fv_error lost;     /* its hand-off, while the batch was computed */
    size_t bytes_peak; /* of KV, until its rows have left */
    fv_export *ship;
    fv_transport *transport; /* borrowed from the peer; NULL: no hand-off */
    bool begun_said;
    int32_t at_work; /* its place in `pulse`; 0: none */
    double arrived_s, opened_s, reading_s, read_s, encoding_s, began_s, sending_s, prefilled_s,
        sent_s;

    /* outcome: the loop thread reads it when notified; `prefill` likewise, its token with
     * `first`, the rest with `over` */
    fv_ticket ticket;     /* with `begun` */
    uint64_t bytes_bound; /* when memory was requested */
    fv_error fault;       /* with `over` */
    fv_refusal refusal;
    fv_export_report sent;
} fv_task;

/* The worker's own tiny request, and when it is due. It has its own pool: one that is full of
 * requests is no sign of illness, and their bytes are counted. */
typedef struct fv_prefill_probe {
    fv_probe_clock clock;
    fv_kv_pool *pool;
    bool under_way;
    fv_task task;
    int32_t id; /* its prompt */
} fv_prefill_probe;

/* What the computing thread owns. */
typedef struct fv_prefill_line {
    const fv_engine *engine; /* borrowed */
    fv_kv_pool *pool;
    fv_image_cache *cache;
    float *logits; /* [batch, vocab] */
    fv_task *first, **tail;
    fv_prefill_probe probe;
} fv_prefill_line;

struct fv_prefill_worker {
    fv_prefill_worker_options opt;
    fv_jobs *jobs, *reader;
    fv_prefill_line line;
    fv_job wake; /* makes the computing thread look at its tasks */
    atomic_bool woken;
    /* what others may ask while it computes */
    atomic_int n_started;
    _Atomic uint64_t bytes_held, entries_in, pixels_held;
    atomic_ullong n_good, n_bad; /* batches, for fv_vital_signs */
    atomic_ullong n_read;        /* images */
    fv_pulse *pulse;

    /* loop thread */
    fv_peers *pairs;                             /* NULL: there are none */
    uint64_t bytes_grpc, bytes_nccl, n_fallback; /* of hand-offs that went well */
    fv_decode_peer *peers;
    int32_t n_peer, n_task;
    uint64_t n_done, n_failed, n_tokens;
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

/* worker.c: a request comes, and goes: FV_EBUSY when there are too many. Loop thread. */
fv_status fv_prefill_worker_enter(fv_prefill_worker *w);
void fv_prefill_worker_leave(fv_prefill_worker *w);

/* tokenize.c: calls that need the tokenizer and nothing else. */
#define FV_TOKENIZE_PATH "/fovea.handoff.v1.Prefill/Tokenize"
#define FV_DETOKENIZE_PATH "/fovea.handoff.v1.Prefill/Detokenize"
enum { FV_TOKENIZE_BYTES_MAX = 4 << 20 };
fv_status fv_tokenize_on_message(fv_rpc_call *c, grpc_byte_buffer *message);
fv_status fv_detokenize_on_message(fv_rpc_call *c, grpc_byte_buffer *message);
void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end);

/* task.c: a message becomes a prompt, a plan and a request for memory. If the task is
 * READING after either of the first two, its images come first: it goes on with the second.
 * fv_task_release frees everything, also after a failure; with `keep` a hand-off that is
 * done stays. */
fv_status fv_task_prepare(fv_task *t);
fv_status fv_task_prepare_rest(fv_task *t);
void fv_task_release(fv_task *t, bool keep);
void fv_task_fini(fv_task *t); /* what the report was made of goes too */

/* images.c: images become rows. */

/* Loop thread: counts the pixels of a request by the headers of its images, and takes them of the
 * worker's. FV_EINVAL: one cannot be read, or they are too many; FV_EBUSY: too many for now. */
fv_status fv_task_take_pixels(fv_task *t);
void fv_task_give_pixels(fv_task *t); /* the thread that has the task; can be called again */

/* Sends the images that the cache does not have to the reading thread: READING then. When they
 * are back, fv_task_images_read says how it went; until then (images.away) the task must stay.
 */
fv_status fv_task_read_images(fv_task *t);
fv_status fv_task_images_read(fv_task *t);

/* Runs them through the tower. READING after this: the cache has dropped one meanwhile. Does
 * nothing when it was done before. */
fv_status fv_task_encode(fv_task *t);

/* run.c: the computing thread's part. */

/* From now on the task is worked on, and `shared` counts for it, too; or it waits again. */
void fv_task_works(fv_task *t, uint64_t (*shared)(const void *worker));
void fv_task_waits(fv_task *t);

fv_status fv_prefill_line_open(fv_prefill_worker *w);
void fv_prefill_line_close(fv_prefill_worker *w); /* the thread has ended, or never began */
void fv_task_enqueue(fv_job *job);                /* a task's job */
double fv_prefill_line_work(void *worker);        /* fv_jobs_options.work */

/* probe.c: the probe's way in and out of the line. */
fv_status fv_prefill_probe_open(fv_prefill_worker *w);
void fv_prefill_probe_close(fv_prefill_worker *w);
bool fv_prefill_probe_due(const fv_prefill_worker *w);
double
fv_prefill_probe_pause(const fv_prefill_worker *w); /* seconds until one is due; below 0: never */
void fv_prefill_probe_begin(fv_prefill_worker *w);
void fv_prefill_probe_over(fv_task *t);
void fv_prefill_went_well(fv_prefill_worker *w); /* a request did: no probe is due for a while */

/* report.c: this worker's half of the report, for a task that is over. *out is in the
 * task's arena. */
fv_status fv_task_report(fv_task *t, fv_report_message **out);

/* record.c: the same for the worker's metrics; `r` is its report. */
void fv_task_record(const fv_task *t, const fv_report_message *r);

/* trace.c: its spans, once; it is over, or was not posted. */
void fv_task_trace(fv_task *t, int code);

#endif
