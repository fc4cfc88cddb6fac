#ifndef FOVEA_DECODE_WORKER_SERVICE_INTERNAL_H
#define FOVEA_DECODE_WORKER_SERVICE_INTERNAL_H

/* THE DECODE WORKER's state, shared by the files of this folder only. */
#include <stdatomic.h>

#include "common/jobs.h"
#include "decode-worker/schedule/opens.h"
#include "decode-worker/schedule/scheduler.h"
#include "decode-worker/service/draft.h"
#include "decode-worker/service/pair.h"
#include "decode-worker/service/worker.h"
#include "handoff.pb-c.h"
#include "serving/worker/forms.h"
#include "telemetry/otlp/spans.h"

struct fv_decode_worker {
    fv_decode_options opt;
    fv_bridge *bridge; /* borrowed */
    fv_jobs *jobs;
    fv_forms *forms;
    /* for the computing thread, once it runs */
    fv_kv_pool *pool, *probe_pool;
    fv_prefixes *prefixes;
    fv_kept_log *kept; /* of prefixes, for the routers */
    fv_probe_clock probe;
    fv_receiver *receiver;
    uint64_t n_expired; /* hand-offs that the scheduler has been told of */
    fv_opens opens;
    fv_lengths *lengths;
    bool leaving; /* draining has begun */
    fv_conversations *conversations;
    fv_scheduler *answers;
    fv_worker_draft draft;
    /* written by the computing thread, read by the loop */
    struct {
        atomic_uint n_running, n_queued, n_kept, n_waiting, n_paused, n_unread, n_prefixes;
        atomic_ullong n_preempted, bytes_granted, bytes_held, bytes_kept, bytes_waiting, n_done,
            n_failed, tokens_out, entries_evicted, tokens_recompressed, tokens_drafted, drafts_kept,
            bytes_prefixes, bytes_prefixes_idle, n_prefixes_given_up;
    } load;
    atomic_ullong handoffs[FV_N_HANDOFF_COUNT]; /* fv_receiver_counters */
    struct {
        atomic_uint tokens_expected;
        atomic_ullong n_preempted;
    } growth; /* of answers; likewise */
    atomic_ullong n_good, n_bad;
    atomic_bool is_idle; /* has granted its last memory, and all that it granted is free again */
    fv_pulse *pulse;
    /* loop thread */
    fv_links_in pairs;
    fv_rpc_op changed; /* calls on_change; posted and not yet run while `changing` */
    atomic_bool changing;
    struct fv_push *pushes;   /* handoff.c: all streams of frames */
    atomic_ullong n_fallback; /* frames announced from device to device that came on the stream */
    fv_job drain;
    bool draining, is_drained;
    fv_rpc_op drained; /* posted after everything that the computing thread has posted */
    void (*closed)(void *user);
    void *closed_user;
};

/* handoff.c: passes on the frames that waited for data over a pair, as far as it has arrived. */
void fv_pushes_look(fv_decode_worker *w);

extern const fv_scheduler_hooks fv_decode_hooks; /* decode.c */
fv_rpc_service fv_handoff_service(fv_decode_worker *w);
fv_rpc_service fv_decode_service(fv_decode_worker *w);

/* Read an id of 16 bytes; FV_EINVAL if it has another length. */
fv_status fv_ticket_read(const ProtobufCBinaryData *id, uint64_t epoch, fv_ticket *out);
fv_status fv_conversation_read(const ProtobufCBinaryData *id, uint8_t out[16]);

/* request.c: fills a request that is {0}; it points into the message and the arena. `context`: the
 * checkpoint's. `speculates`: whether answers run drafts if the request does not say. */
typedef Fovea__Handoff__V1__DecodeRequest fv_decode_message;
fv_status fv_decode_request_read(const fv_decode_message *q, int32_t context, bool speculates,
                                 fv_arena *a, fv_answer *x);

/* record.c: records a successful answer in the worker's metrics. */
void fv_answer_record(const fv_answer_report *r, bool follows);

/* trace.c: records the spans of an answer's call, which is over. */
void fv_answer_trace(const fv_span *span, const fv_answer *x, const fv_answer_report *r, int code);

/* A status with its message, to be passed from one thread to the other. */
typedef struct fv_verdict {
    fv_error fault;
    fv_refusal refusal;
} fv_verdict;

fv_verdict fv_verdict_take(fv_status st, fv_refusal refusal); /* with fv_last_error's message */
fv_verdict fv_verdict_of(fv_status st); /* the same, with the status's refusal */
/* Finishes a call with the verdict; the trailers name the refusal. */
void fv_verdict_finish(const fv_verdict *v, fv_rpc_call *call);

#endif
