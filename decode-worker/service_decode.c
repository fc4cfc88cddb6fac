/* DECODE: a ticket comes in, tokens go out, Finished closes the answer. The call belongs to the
 * loop thread, the answer to the computing thread; what the one has for the other is posted. The
 * loop thread counts who still needs the request (its call, its answer, its cancellation) and frees
 * it when the last is back.
 *
 * Tokens that the client does not read yet wait here: an answer has at most max_tokens of them, and
 * a slow reader must not hold up the batch. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "decode-worker/worker_internal.h"
#include "handoff.pb-c.h"

enum { MESSAGE_MAX = 1 << 20, CALLS_MAX = 4096 };

typedef struct token {
    fv_rpc_op op;
    struct decode *d;
    struct token *next;
    uint32_t index;
    uint64_t digest;
    fv_sampled sampled;
    char text[]; /* terminated */
} token;

typedef struct decode {
    fv_answer answer; /* first, so that an answer is its request */
    fv_decode_worker *w;
    fv_arena arena; /* what the answer points to */
    fv_job begin, drop;
    fv_rpc_op over, dropped;
    /* written by the computing thread before `over` was posted */
    fv_verdict verdict;
    fv_answer_report report;
    /* loop thread */
    fv_rpc_call *call; /* NULL: over */
    int32_t refs;      /* the call, the answer, the drop */
    bool complete;     /* nothing comes behind what is in the list */
    bool finished;
    token *first, **tail; /* that wait to be sent */
} decode;

static void unref(decode *d) {
    if (--d->refs > 0) return;
    while (d->first) {
        token *t = d->first;
        d->first = t->next;
        free(t);
    }
    fv_arena_fini(&d->arena);
    free(d);
}

/* ---- the computing thread --------------------------------------------------------------- */

static void run_begin(fv_job *job) {
    decode *d = job->owner;
    fv_answers_add(d->w->answers, &d->answer);
}

static void run_drop(fv_job *job) {
    decode *d = job->owner;
    if (d->answer.phase != FV_ANSWER_NONE) {
        fv_answers_drop(d->w->answers, &d->answer);
        fv_answers_changed(d->w->answers);
        d->verdict = (fv_verdict){.status = FV_ECANCELLED, .text = "the client has gone"};
        fv_bridge_post(d->w->bridge, &d->over, true);
    }
    fv_bridge_post(d->w->bridge, &d->dropped, true);
}

static void on_token(fv_rpc_op *op, bool ok);

/* protobuf's strings end at a NUL: one that a model says is left out. */
static void copy_text(char *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i]) *out++ = text[i];
    *out = '\0';
}

static fv_status token_chosen(fv_answer *x, uint32_t index, const fv_sampled *sampled,
                              uint64_t digest, const char *text, size_t n_text) {
    decode *d = (decode *)x;
    token *t = malloc(sizeof *t + n_text + 1);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for a token");
    *t = (token){.op = {.done = on_token, .owner = t},
                 .d = d,
                 .index = index,
                 .digest = digest,
                 .sampled = *sampled};
    copy_text(t->text, text, n_text);
    atomic_fetch_add(&d->w->load.tokens_out, 1);
    fv_bridge_post(d->w->bridge, &t->op, true);
    return FV_OK;
}

static void answer_over(fv_answer *x, fv_status st, const fv_answer_report *r) {
    decode *d = (decode *)x;
    d->verdict = fv_verdict_take(st, r->refusal);
    d->report = *r;
    atomic_fetch_add(st == FV_OK ? &d->w->load.n_done : &d->w->load.n_failed, 1);
    fv_bridge_post(d->w->bridge, &d->over, true); /* d may be gone after this */
}

const fv_answers_hooks fv_decode_hooks = {.token = token_chosen, .over = answer_over};

/* ---- messages --------------------------------------------------------------------------- */

typedef Fovea__Inference__V1__GenerateEvent event_message;

static fv_status send_token(fv_rpc_call *c, const token *t) {
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Tokens m = FOVEA__INFERENCE__V1__TOKENS__INIT;
    Fovea__Inference__V1__Token one = FOVEA__INFERENCE__V1__TOKEN__INIT, *list = &one;
    Fovea__Inference__V1__Alternative alt[FV_MAX_LOGPROBS], *alts[FV_MAX_LOGPROBS];
    for (int32_t i = 0; i < t->sampled.n_top; i++) {
        alt[i] = (Fovea__Inference__V1__Alternative)FOVEA__INFERENCE__V1__ALTERNATIVE__INIT;
        alt[i].id = (uint32_t)t->sampled.top[i].id;
        alt[i].logprob = t->sampled.top[i].logprob;
        alts[i] = &alt[i];
    }
    one.id = (uint32_t)t->sampled.id;
    one.logprob = t->sampled.logprob;
    one.digest = t->digest;
    one.n_alternatives = (size_t)t->sampled.n_top;
    one.alternatives = alts;
    m.index = t->index;
    m.n_tokens = 1;
    m.tokens = &list;
    m.text = (char *)(uintptr_t)t->text;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS;
    e.tokens = &m;
    return fv_rpc_call_send(c, &e.base);
}

static Fovea__Inference__V1__FinishReason reason_of(fv_finish f) {
    switch (f) {
    case FV_FINISH_LENGTH: return FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH;
    case FV_FINISH_EOS: return FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS;
    case FV_FINISH_STOP: return FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP;
    case FV_FINISH_NOT: break;
    }
    return FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_UNSPECIFIED;
}

static fv_status send_finished(const decode *d) {
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Finished m = FOVEA__INFERENCE__V1__FINISHED__INIT;
    Fovea__Inference__V1__Report r = FOVEA__INFERENCE__V1__REPORT__INIT;
    Fovea__Inference__V1__Transfer t = FOVEA__INFERENCE__V1__TRANSFER__INIT;
    r.n_generated = (uint32_t)d->report.n_generated;
    r.bytes_visual_end = d->report.bytes_visual;
    r.bytes_text_end = d->report.bytes_text;
    r.seconds_decode = d->report.s_decode;
    r.decode_worker = (char *)(uintptr_t)d->w->opt.name;
    t.seconds_claim = d->report.s_claim;
    r.transfer = &t;
    m.reason = reason_of(d->report.finish);
    m.report = &r;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED;
    e.finished = &m;
    return fv_rpc_call_send(d->call, &e.base);
}

/* ---- the loop thread -------------------------------------------------------------------- */

/* Sends what there is and fits; at the end, the end. */
static void flush(decode *d) {
    fv_status st = FV_OK;
    if (!d->call || d->finished) return;
    while (st == FV_OK && d->first && fv_rpc_call_writable(d->call)) {
        token *t = d->first;
        d->first = t->next;
        if (!d->first) d->tail = &d->first;
        st = send_token(d->call, t);
        free(t);
    }
    if (st == FV_OK && (d->first || !d->complete)) return;
    if (st == FV_OK && d->verdict.status == FV_OK) {
        if (!fv_rpc_call_writable(d->call)) return;
        st = send_finished(d);
    }
    d->finished = true;
    if (st == FV_OK)
        fv_verdict_finish(&d->verdict, d->call);
    else
        fv_rpc_call_finish(d->call, st);
}

static void on_token(fv_rpc_op *op, bool ok) {
    token *t = op->owner;
    decode *d = t->d;
    (void)ok;
    t->next = NULL;
    *d->tail = t;
    d->tail = &t->next;
    flush(d);
}

static void on_over(fv_rpc_op *op, bool ok) {
    decode *d = op->owner;
    (void)ok;
    d->complete = true;
    flush(d);
    unref(d);
}

static void on_dropped(fv_rpc_op *op, bool ok) {
    (void)ok;
    unref(op->owner);
}

/* ---- the request ------------------------------------------------------------------------ */

typedef Fovea__Handoff__V1__DecodeRequest request_message;

static fv_status read_request(const request_message *q, decode *d) {
    fv_answer *x = &d->answer;
    if (q->source_case != FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET || !q->ticket)
        return FV_FAIL(q->source_case == FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION
                           ? FV_EUNSUPPORTED
                           : FV_EINVAL,
                       "a ticket is needed: this worker keeps no conversations");
    if (q->keep_ms > 0)
        return FV_FAIL(FV_EUNSUPPORTED, "keep_ms: this worker keeps no conversations");
    if (q->max_tokens == 0 || q->max_tokens > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "max_tokens is %u; it must be at least 1", q->max_tokens);
    if (q->n_logprobs > FV_MAX_LOGPROBS)
        return FV_FAIL(FV_EINVAL, "n_logprobs is %u; at most %d", q->n_logprobs, FV_MAX_LOGPROBS);
    if (q->n_stop > FV_MAX_STOP)
        return FV_FAIL(FV_EINVAL, "%zu stop strings, and at most %d are taken", q->n_stop,
                       FV_MAX_STOP);
    FV_TRY(fv_ticket_read(&q->ticket->id, q->ticket->epoch, &x->ticket));
    const char **stop;
    uint32_t *replay;
    FV_TRY(FV_ARENA_NEW(&d->arena, q->n_stop + 1, stop));
    FV_TRY(FV_ARENA_NEW(&d->arena, q->n_replay + 1, replay));
    for (size_t i = 0; i < q->n_stop; i++) {
        char *copy;
        size_t n = strlen(q->stop[i]) + 1;
        FV_TRY(FV_ARENA_NEW(&d->arena, n, copy));
        memcpy(copy, q->stop[i], n);
        stop[i] = copy;
    }
    if (q->n_replay) memcpy(replay, q->replay, q->n_replay * sizeof *replay);
    x->max_tokens = (int32_t)q->max_tokens;
    x->n_logprobs = (int32_t)q->n_logprobs;
    x->n_stop = (int32_t)q->n_stop;
    x->stop = stop;
    x->n_replay = (int32_t)q->n_replay;
    x->replay = replay;
    x->ignore_eos = q->ignore_eos;
    x->digests = q->digests;
    return FV_OK;
}

static fv_status on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__decode_request__descriptor, message, &m));
    decode *d = calloc(1, sizeof *d);
    if (!d) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    d->w = fv_rpc_call_service(c);
    d->tail = &d->first;
    d->call = c;
    d->refs = 2;
    d->begin = (fv_job){.run = run_begin, .owner = d};
    d->drop = (fv_job){.run = run_drop, .owner = d};
    d->over = (fv_rpc_op){.done = on_over, .owner = d};
    d->dropped = (fv_rpc_op){.done = on_dropped, .owner = d};
    fv_status st = read_request((const request_message *)m, d);
    if (st == FV_OK) st = fv_jobs_post(d->w->jobs, &d->begin);
    if (st != FV_OK) {
        d->refs = 1;
        unref(d);
        return st;
    }
    fv_rpc_call_set_user(c, d);
    return FV_OK;
}

static void on_writable(fv_rpc_call *c) {
    decode *d = fv_rpc_call_user(c);
    if (d) flush(d);
}

static void on_cancel(fv_rpc_call *c) {
    decode *d = fv_rpc_call_user(c);
    if (!d || d->complete) return;
    d->refs++;
    fv_jobs_follow(d->w->jobs, &d->drop);
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    decode *d = fv_rpc_call_user(c);
    if (!d) return;
    if (d->complete && d->verdict.status != FV_OK && d->verdict.status != FV_ECANCELLED)
        FV_LOG(WARN, DECODE, "event=failed peer=%s status=%s text=\"%s\"", fv_rpc_call_peer(c),
               fv_status_name(d->verdict.status), d->verdict.text);
    (void)end;
    d->call = NULL;
    unref(d);
}

fv_rpc_service fv_decode_service(fv_decode_worker *w) {
    static const fv_rpc_method methods[] = {
        {.path = "/fovea.handoff.v1.Decode/Decode",
         .kind = FV_RPC_SERVER_STREAM,
         .message_max = MESSAGE_MAX,
         .calls_max = CALLS_MAX,
         .events = {.on_message = on_message,
                    .on_writable = on_writable,
                    .on_cancel = on_cancel,
                    .on_end = on_end}},
    };
    return (fv_rpc_service){methods, sizeof methods / sizeof methods[0], w, NULL};
}
