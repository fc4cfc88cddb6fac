#ifndef FOVEA_DECODE_WORKER_SERVICE_WORKER_H
#define FOVEA_DECODE_WORKER_SERVICE_WORKER_H

/* DECODE WORKER: the services Handoff and Decode of fovea/handoff/v1/handoff.proto over the stages
 * of decode-worker/schedule/scheduler.h.
 *
 *   [loop thread]                     jobs            [computing thread]
 *   handoff.c  Open           ------------->  opens: memory now, or in turn
 *                      Push, frames   ------------->            frame ... commit
 *                      Release        ------------->            abort
 *   decode.c   Decode         ------------->  attach, generation, batch: join
 *                      tokens        <-------------   batch: step, while it is not empty
 *
 * Everything that computes, and the KV pool, belongs to the computing thread; every call belongs to
 * the loop thread. A client that disconnects, a deadline, an expired lease: each frees what its
 * request held.
 *
 * A Finished of Decode reports n_generated (of the whole answer), bytes_visual_end,
 * bytes_text_end, bytes_tables_end, entries_evicted, recompressed, seconds_decode,
 * transfer.seconds_attach and decode_worker. The prefill worker reports the rest. A follow-up has
 * no prefill worker: its report also has n_prompt = n_text (the tokens that ran before its first
 * token: the new ones, and the last answer's last token, which had been chosen and not run),
 * bytes_raw, bytes_bound, bytes_visual and bytes_text after they had run, seconds_prefill,
 * seconds_queued for a slot in the batch, and the conversation's policy. */
#include "common/liveness.h"
#include "common/pulse.h"
#include "decode-worker/receive/receive.h"
#include "inference.pb-c.h"
#include "kv/cache/kept_log.h"
#include "model/engine.h"
#include "rpc/server.h"
#include "serving/caller.h"

typedef struct fv_decode_options {
    const fv_engine *engine; /* borrowed, for the computing thread until `closed` */
    const char *name;        /* this worker's name in reports; borrowed */
    fv_callers *callers;     /* checks who may call; borrowed */
    fv_dtype kv_dtype;
    size_t kv_bytes;       /* limit of the KV pool; 0: none */
    int32_t batch_max;     /* answers that run at a time; more wait */
    int32_t prompt_tokens; /* prompt rows of follow-ups in a step: bounds the others' wait */
    int32_t queue_max;     /* requests that wait for the computing thread; more are refused */
    size_t prefix_bytes; /* share of the pool for prompts that later ones reuse; 0: none are kept */
    int32_t
        rest_most; /* tokens of a prompt's end that are computed here if all others are kept; 0: none */
    size_t keep_bytes; /* share of the pool for kept conversations; 0: half of kv_bytes */
    double keep_s_max; /* longest time that a conversation is kept; 0: none is */
    double probe_s;    /* seconds without a token before the worker probes itself; 0: never */
    const fv_peer_ops *pairs; /* operations of peer links; NULL: the worker offers none */
    int32_t pairs_most;       /* maximum number of peer links */
    fv_grants_options grants; /* fv_grants_options_default() */
    int32_t waiting_max;      /* Opens that wait for memory; more are refused */
    double wait_s_max;        /* longest time that an Open waits */
    double
        behind_s; /* longest time that an Open waits for a prompt that is on its way here already; 0: none does */
    /* Reserve memory for all tokens that an answer may have when it begins; otherwise for as many as are expected. */
    bool reserve_all;
    bool speculate;                 /* answers run drafts if their requests do not say */
    const fv_engine_options *draft; /* of the draft model, read by `open`; NULL: none */
    size_t draft_kv_bytes;          /* limit of its KV; 0: none */
    /* Called on the loop thread when memory was taken or freed, when the requests waiting for it changed,
     * or the number of answers whose readers do not read. May be NULL. */
    void (*on_change)(void *user);
    void *user;
} fv_decode_options;

fv_decode_options fv_decode_options_default(void);

typedef struct fv_decode_worker fv_decode_worker; /* opaque */

/* Opens a worker and starts its computing thread. This and all that follows is for the loop thread. */
fv_status fv_decode_worker_open(fv_bridge *bridge, const fv_decode_options *opt,
                                fv_decode_worker **out);

/* Returns the services Handoff and Decode, for fv_rpc_server_open. */
enum { FV_DECODE_SERVICES = 2 };
void fv_decode_worker_services(fv_decode_worker *w, fv_rpc_service out[FV_DECODE_SERVICES]);

/* Returns the worker's load now. */
Fovea__Inference__V1__Load fv_decode_worker_load(const fv_decode_worker *w);

/* Returns counts of hand-offs so far by outcome, and of refusals by reason (handoff/refusal.h). */
fv_receiver_counters fv_decode_worker_handoffs(const fv_decode_worker *w);

/* Sets the metrics of these counts. */
void fv_decode_worker_record(const fv_decode_worker *w);

/* Drops all kept conversations, and from now on keeps none and lets no Open wait: the worker is about to
 * leave. */
void fv_decode_worker_drain(fv_decode_worker *w);

/* Returns whether a draining worker has nothing in hand. From then on it refuses every Open, so that its server
 * may stop: each granted hand-off has become an answer, or its lease has expired. */
bool fv_decode_worker_idle(const fv_decode_worker *w);

/* Returns what the worker keeps of prompts, for its routers; valid until `closed`. */
fv_kept_log *fv_decode_worker_kept(const fv_decode_worker *w);

/* Returns the list of running answers; valid until `closed`. */
fv_pulse *fv_decode_worker_pulse(const fv_decode_worker *w);

/* Returns counts of steps that produced tokens (or probes that succeeded), of failed ones, and of layers. */
fv_vital_signs fv_decode_worker_signs(const fv_decode_worker *w);

/* Ends the computing thread and frees the worker; then `closed` runs on the loop. Its server must have
 * stopped: no call runs. */
void fv_decode_worker_close(fv_decode_worker *w, void (*closed)(void *user), void *user);

#endif
