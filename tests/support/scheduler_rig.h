#ifndef FOVEA_TESTS_SUPPORT_SCHEDULER_RIG_H
#define FOVEA_TESTS_SUPPORT_SCHEDULER_RIG_H

/* The scheduler of a decode worker with a real network, without a connection: requests are prefilled
 * and handed over in this process, and the test runs the steps. For programs with Criterion: helpers
 * fail the test on any error. */
#include "decode-worker/schedule/scheduler.h"
#include "prefill-worker/job/job.h"

enum { ASKED_TOKENS = 160, ASKED_TEXT = 4096 };

typedef struct scheduler_rig {
    char dir[512];
    fv_engine engine;
    fv_kv_pool *p_pool, *pool; /* the prefill side's, and the decode worker's */
    fv_image_cache *cache;
    fv_receiver *receiver;
    /* Passes hand-offs on to the receiver, with what the request in hand asks for. */
    fv_sink sink;
    const struct asked_prompt *asking;
    fv_transport *transport;
    fv_conversations *conversations;
    fv_scheduler *answers;
} scheduler_rig;

/* An answer and its outcome. */
typedef struct asked {
    fv_answer answer; /* first */
    int32_t n;        /* tokens, without the prefill side's */
    uint64_t digest[ASKED_TOKENS];
    fv_sampled token[ASKED_TOKENS], first; /* first: the prefill side's */
    char text[ASKED_TEXT];
    int32_t fail_at; /* there is no memory for this token, from 1; 0: for all there is */
    int over;
    fv_status status;
    fv_answer_report report;
} asked;

/* The suite's init and fini may call these: the checkpoint is made once for each process. */
void scheduler_rig_open(scheduler_rig *r, int32_t batch_max);
void scheduler_rig_open_with(scheduler_rig *r, int32_t batch_max, size_t kv_bytes);
void scheduler_rig_close(scheduler_rig *r); /* only kept conversations may be left */

/* A request: its prompt, and the answer's fields that the caller sets. */
typedef struct asked_prompt {
    const char *policy;
    bool image; /* with an image */
    fv_sampling sampling;
    int32_t reserve;  /* tokens to reserve memory for at first; 0: all */
    double arrived_s; /* at its router; 0: now */
    int32_t salt;     /* another one is another prompt */
    int32_t n_replay;
    const int32_t *replay; /* [n_replay] tokens of the answer that its client has */
} asked_prompt;

/* Prefills the prompt, hands it over and adds a->answer, whose ticket this sets; max_tokens counts the
 * prefill side's token, which is the first one unless first_held. */
void scheduler_ask(scheduler_rig *r, asked *a, const asked_prompt *prompt);

/* The same; false: there is no memory for it now, and nothing was added. */
bool scheduler_try(scheduler_rig *r, asked *a, const asked_prompt *prompt);

/* Steps until the answer is in this phase; fails when that does not come. */
void scheduler_run_until(scheduler_rig *r, const asked *a, fv_answer_phase phase);

#endif
