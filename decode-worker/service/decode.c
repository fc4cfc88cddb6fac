/* Serves Decode: a ticket or a kept conversation's name comes in, tokens go out, Finished closes the
 * answer. The call belongs to the loop thread, the answer to the computing thread; they exchange posted
 * messages. The loop thread counts who still needs the request (its call, its answer, its cancellation)
 * and frees it after the last.
 *
 * Tokens that the reader has not read wait here. If there are too many, the answer gives its slot in the
 * batch away until they have gone out (fv_scheduler_hold), so that a slow reader delays no other answer:
 *
 *     more than UNSENT_MOST wait, and the call is full --> held
 *     none waits ------------------------------------> goes on
 *
 * The router ends answers that are not read for too long (its --unread-ms). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "decode-worker/service/internal.h"
#include "rpc/message.h"
#include "serving/worker/token_message.h"

enum {
    MESSAGE_MAX = 1 << 20,
    CALLS_MAX = 4096,
    QUEUE_BYTES = 16 << 10, /* bytes queued in a call; the connection holds as much again */
    UNSENT_MOST = 16,       /* tokens of a running answer that may wait for that queue */
};

typedef struct token {
    fv_rpc_op op;
    struct decode *d;
    struct token *next;
    uint32_t index;
    uint64_t digest;
    fv_sampled sampled;
    char text[]; /* NUL-terminated */
} token;

typedef struct decode {
    fv_answer answer; /* first, so that an answer is its request */
    fv_decode_worker *w;
    fv_arena arena; /* the message and what the answer points to */
    const char *id; /* the request's name, in the arena */
    bool token_texts;
    fv_job begin, drop, hold;
    fv_form_unit beginning, dropping, holding; /* take these jobs to the computing thread */
    /* through the threads that compile grammars: `begin` was, and the others must not overtake it, until it has run */
    bool formed;
    atomic_bool begun;
    fv_rpc_op over, dropped, told;
    /* written by the computing thread before `over` was posted */
    fv_verdict verdict;
    fv_answer_report report;
    /* loop thread */
    fv_rpc_call *call; /* NULL: over */
    fv_span span;
    int32_t refs; /* held by the call, the answer, `drop` and `hold` */
    int32_t n_unsent;
    bool telling;  /* `hold` or `told` is under way: `unread` does not change */
    bool unread;   /* the value of the last `hold` */
    bool complete; /* no token follows those in the list */
    bool finished;
    token *first, **tail; /* tokens that wait to be sent */
} decode;

static void unref(decode *d) {
    if (--d->refs > 0) return;
    while (d->first) {
        token *t = d->first;
        d->first = t->next;
        free(t);
    }
    fv_forms_release(&d->beginning);
    fv_arena_fini(&d->arena);
    free(d);
}

/* ---- the computing thread --------------------------------------------------------------- */

static void run_begin(fv_job *job) {
    decode *d = job->owner;
    atomic_store(&d->begun, true);
    fv_scheduler_add(d->w->answers, &d->answer);
}

static void run_drop(fv_job *job) {
    decode *d = job->owner;
    if (d->answer.phase != FV_ANSWER_NONE) {
        fv_scheduler_drop(d->w->answers, &d->answer);
        fv_scheduler_changed(d->w->answers);
        d->verdict = (fv_verdict){
            .fault = {.status = FV_ECANCELLED, .text = "the client cancelled the request"}};
        fv_bridge_post(d->w->bridge, &d->over, true);
    }
    fv_bridge_post(d->w->bridge, &d->dropped, true);
}

static void run_hold(fv_job *job) {
    decode *d = job->owner;
    fv_scheduler_hold(d->w->answers, &d->answer, d->unread);
    fv_bridge_post(d->w->bridge, &d->told, true);
}

static void on_token(fv_rpc_op *op, bool ok);

/* Copies text without NUL bytes, which a model may produce but a protobuf-c string cannot hold. */
static void copy_text(char *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i]) *out++ = text[i];
    *out = '\0';
}

static fv_status token_chosen(fv_answer *x, uint32_t index, const fv_batch_event *e,
                              uint64_t digest) {
    decode *d = (decode *)x;
    token *t = malloc(sizeof *t + e->n_text + 1);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for a token");
    *t = (token){.op = {.done = on_token, .owner = t},
                 .d = d,
                 .index = index,
                 .digest = digest,
                 .sampled = *e->token};
    copy_text(t->text, e->text, e->n_text);
    atomic_fetch_add(&d->w->load.tokens_out, 1);
    fv_bridge_post(d->w->bridge, &t->op, true);
    if (index >= 3) fv_failpoint_reached(FV_FAILPOINT_DECODE_RUNNING);
    return FV_OK;
}

static void answer_over(fv_answer *x, fv_status st, const fv_answer_report *r) {
    decode *d = (decode *)x;
    if (st == FV_OK) fv_failpoint_reached(FV_FAILPOINT_DECODE_OVER);
    d->verdict = fv_verdict_take(st, r->refusal);
    d->report = *r;
    if (st == FV_OK)
        atomic_fetch_add(&d->w->load.n_done, 1);
    else if (!fv_status_is_callers(st) && r->refusal != FV_REFUSED_PREEMPTED)
        atomic_fetch_add(&d->w->load.n_failed, 1);
    atomic_fetch_add(&d->w->load.entries_evicted, r->entries_evicted);
    atomic_fetch_add(&d->w->load.tokens_recompressed, r->recompressed.rows);
    atomic_fetch_add(&d->w->load.tokens_drafted, r->n_drafted);
    atomic_fetch_add(&d->w->load.drafts_kept, r->n_drafts_kept);
    fv_bridge_post(d->w->bridge, &d->over, true); /* d may be gone after this */
}

const fv_scheduler_hooks fv_decode_hooks = {.token = token_chosen, .over = answer_over};

/* ---- messages --------------------------------------------------------------------------- */

typedef Fovea__Inference__V1__GenerateEvent event_message;

static fv_status send_token(fv_rpc_call *c, const token *t) {
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Tokens m = FOVEA__INFERENCE__V1__TOKENS__INIT;
    const fv_tokenizer *texts = t->d->token_texts ? t->d->w->opt.engine->tok : NULL;
    fv_arena arena = {0};
    Fovea__Inference__V1__Token *one;
    fv_status st = fv_token_to_message(&t->sampled, t->digest, texts, &arena, &one);
    m.index = t->index;
    m.n_tokens = 1;
    m.tokens = &one;
    m.text = (char *)(uintptr_t)t->text;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS;
    e.tokens = &m;
    if (st == FV_OK) st = fv_rpc_call_send(c, &e.base);
    fv_arena_fini(&arena);
    return st;
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

/* Fills in what the prefill worker reports if there was a hand-off. */
static void fill_follow_up(decode *d, Fovea__Inference__V1__Report *r) {
    const fv_answer_report *a = &d->report;
    r->policy = d->report.policy;
    r->n_prompt = r->n_text = (uint32_t)a->n_prompt;
    r->bytes_raw = a->bytes_raw;
    r->bytes_visual = a->bytes_visual;
    r->bytes_text = a->bytes_text;
    r->bytes_bound = a->bytes_visual + a->bytes_text;
    r->seconds_prefill = a->s_prefill;
    r->seconds_queued = a->s_attach;
}

/* Fills in what the prefill worker has left to this one. */
static void fill_rest(const decode *d, Fovea__Inference__V1__Report *r) {
    const fv_answer_report *a = &d->report;
    r->bytes_visual = a->bytes_visual;
    r->bytes_text = a->bytes_text;
    r->seconds_prefill = a->s_prefill;
}

static void fill_recompressed(const fv_recompress_report *in,
                              Fovea__Inference__V1__Recompressed *out) {
    out->tokens = in->rows;
    out->n_layer = (uint32_t)in->n_layer;
    out->bytes_freed = in->bytes;
    out->error = in->error;
    out->seconds = in->seconds;
}

static fv_status send_finished(decode *d) {
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Finished m = FOVEA__INFERENCE__V1__FINISHED__INIT;
    Fovea__Inference__V1__Report r = FOVEA__INFERENCE__V1__REPORT__INIT;
    Fovea__Inference__V1__Transfer t = FOVEA__INFERENCE__V1__TRANSFER__INIT;
    Fovea__Inference__V1__Recompressed again = FOVEA__INFERENCE__V1__RECOMPRESSED__INIT;
    r.n_generated = (uint32_t)d->report.n_generated;
    r.bytes_visual_end = d->report.bytes_visual_end;
    r.bytes_text_end = d->report.bytes_text_end;
    r.bytes_tables_end = d->report.bytes_tables_end;
    r.entries_evicted = d->report.entries_evicted;
    r.seconds_decode = d->report.s_decode;
    r.n_drafted = d->report.n_drafted;
    r.n_drafts_kept = d->report.n_drafts_kept;
    r.seconds_drafts_saved = d->report.s_drafts_saved;
    r.decode_worker = (char *)(uintptr_t)d->w->opt.name;
    fill_recompressed(&d->report.recompressed, &again);
    if (again.tokens > 0) r.recompressed = &again;
    t.seconds_attach = d->report.s_attach;
    if (d->answer.follows)
        fill_follow_up(d, &r);
    else
        r.transfer = &t;
    if (d->answer.begins) fill_rest(d, &r);
    m.reason = reason_of(d->report.finish);
    m.report = &r;
    fv_answer_record(&d->report, d->answer.follows);
    if (d->report.keep_s > 0) {
        m.keep_ms = (uint32_t)(1e3 * d->report.keep_s);
        m.conversation =
            (ProtobufCBinaryData){sizeof d->report.conversation, d->report.conversation};
    }
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED;
    e.finished = &m;
    return fv_rpc_call_send(d->call, &e.base);
}

/* ---- the loop thread -------------------------------------------------------------------- */

static fv_form_share share_of(const decode *d) {
    const fv_answer *x = &d->answer;
    return (fv_form_share){x->share_name && *x->share_name ? x->share_name : x->tenant, x->weight};
}

/* Posts a job that must come after `begin`. */
static void post_after(decode *d, fv_form_unit *u, fv_job *job) {
    if (d->formed && !atomic_load(&d->begun))
        fv_forms_follow(d->w->forms, u, &d->beginning, job);
    else
        fv_jobs_post_followup(d->w->jobs, job);
}

/* Tells the computing thread that the reader has stopped reading, or reads again. */
static void tell_unread(decode *d) {
    bool unread = d->n_unsent > (d->unread ? 0 : UNSENT_MOST);
    if (!d->call || d->complete || d->telling || unread == d->unread) return;
    d->telling = true;
    d->unread = unread;
    d->refs++;
    post_after(d, &d->holding, &d->hold);
}

/* Sends waiting tokens while the call takes them, and after the last one Finished or the failure. */
static void flush(decode *d) {
    fv_status st = FV_OK;
    if (!d->call || d->finished) return;
    while (st == FV_OK && d->first && fv_rpc_call_writable(d->call)) {
        token *t = d->first;
        d->first = t->next;
        if (!d->first) d->tail = &d->first;
        d->n_unsent--;
        st = send_token(d->call, t);
        free(t);
    }
    if (st == FV_OK && (d->first || !d->complete)) return;
    if (st == FV_OK && d->verdict.fault.status == FV_OK) {
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
    d->n_unsent++;
    flush(d);
    tell_unread(d);
}

/* Looks again, because the reader may have stopped or resumed meanwhile. */
static void on_told(fv_rpc_op *op, bool ok) {
    decode *d = op->owner;
    (void)ok;
    d->telling = false;
    tell_unread(d);
    unref(d);
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

/* Checks that the caller may use the source. The ticket authorizes a hand-off; a kept conversation needs
 * a token for this request, because its name is known to the client. */
static fv_status check_caller(fv_rpc_call *c, const fv_decode_message *q) {
    const fv_decode_worker *w = fv_rpc_call_service(c);
    fv_caller who;
    if (q->source_case == FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET) return FV_OK;
    FV_TRY(fv_caller_identify(w->opt.callers, c, &who));
    return fv_caller_check_request(&who, q->request_id, NULL);
}

static fv_status read_request(decode *d, grpc_byte_buffer *message) {
    int32_t context = fv_checkpoint_config(d->w->opt.engine->ck)->text.max_position;
    ProtobufCMessage *m;
    fv_status st =
        fv_rpc_unpack(&fovea__handoff__v1__decode_request__descriptor, message, &d->arena, &m);
    if (st != FV_OK) return st == FV_EDATA ? FV_EINVAL : st;
    const fv_decode_message *q = (const fv_decode_message *)m;
    FV_TRY(check_caller(d->call, q));
    FV_TRY(fv_fail_caller(
        fv_decode_request_read(q, context, d->w->opt.speculate, &d->arena, &d->answer)));
    d->answer.request_id = d->id = q->request_id;
    d->answer.tenant = q->tenant;
    d->answer.tenant_bytes = q->tenant_kv_bytes;
    d->token_texts = q->token_texts;
    const fv_grammar_spec *form = &d->answer.rules.grammar;
    d->formed = form->kind != 0;
    if (!d->formed) return fv_jobs_post(d->w->jobs, &d->begin);
    d->answer.rules.compiled = fv_forms_result(&d->beginning);
    const fv_form_share share = share_of(d);
    fv_forms_add(d->w->forms, &d->beginning, form, &share, d->w->jobs, &d->begin);
    return FV_OK;
}

static fv_status on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    decode *d = calloc(1, sizeof *d);
    if (!d) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    fv_trace_context trace = fv_rpc_call_trace(c);
    d->span = fv_span_begin("Decode", FV_SPAN_SERVER, &trace, fv_clock_s());
    d->w = fv_rpc_call_service(c);
    d->tail = &d->first;
    d->call = c;
    d->refs = 2;
    d->begin = (fv_job){.run = run_begin, .owner = d};
    d->drop = (fv_job){.run = run_drop, .owner = d};
    d->hold = (fv_job){.run = run_hold, .owner = d};
    d->over = (fv_rpc_op){.done = on_over, .owner = d};
    d->told = (fv_rpc_op){.done = on_told, .owner = d};
    d->dropped = (fv_rpc_op){.done = on_dropped, .owner = d};
    fv_status st = read_request(d, message);
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
    if (!d) return;
    flush(d);
    tell_unread(d);
}

static void on_cancel(fv_rpc_call *c) {
    decode *d = fv_rpc_call_user(c);
    if (!d || d->complete) return;
    d->refs++;
    post_after(d, &d->dropping, &d->drop);
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    decode *d = fv_rpc_call_user(c);
    if (!d) return;
    char trace[2 * FV_TRACE_ID_BYTES + 1];
    fv_trace_id_print(&d->span.context, trace);
    if (d->complete && d->verdict.fault.status == FV_OK)
        FV_LOG(INFO, DECODE, "req=%s tenant?=%s trace?=%s event=done tokens=%d decode_s=%.4f",
               d->id, d->answer.tenant, trace, d->report.n_generated, d->report.s_decode);
    else if (d->complete && d->verdict.refusal == FV_REFUSED_PREEMPTED)
        FV_LOG(INFO, DECODE, "req=%s tenant?=%s trace?=%s event=preempted", d->id, d->answer.tenant,
               trace);
    else if (d->complete && d->verdict.fault.status != FV_ECANCELLED &&
             fv_status_is_callers(d->verdict.fault.status))
        FV_LOG(INFO, DECODE,
               "req=%s tenant?=%s trace?=%s event=refused peer=%s status=%s reason=\"%s\"", d->id,
               d->answer.tenant, trace, fv_rpc_call_peer(c),
               fv_status_grpc_name(d->verdict.fault.status), d->verdict.fault.text);
    else if (d->complete && d->verdict.fault.status != FV_ECANCELLED)
        FV_LOG(WARN, DECODE,
               "req=%s tenant?=%s trace?=%s event=failed peer=%s status=%s reason=\"%s\"", d->id,
               d->answer.tenant, trace, fv_rpc_call_peer(c),
               fv_status_grpc_name(d->verdict.fault.status), d->verdict.fault.text);
    else
        FV_LOG(INFO, DECODE, "req=%s tenant?=%s trace?=%s event=cancelled", d->id, d->answer.tenant,
               trace);
    static const fv_answer_report nothing;
    fv_answer_trace(&d->span, &d->answer, d->complete ? &d->report : &nothing, (int)end->code);
    d->call = NULL;
    unref(d);
}

/* ---- Forget ----------------------------------------------------------------------------- */

typedef struct forget {
    fv_job job;
    fv_rpc_op back;
    fv_decode_worker *w;
    fv_rpc_call *call; /* NULL: over */
    uint8_t id[16];
} forget;

static void run_forget(fv_job *job) {
    forget *f = job->owner;
    fv_conversations_forget(f->w->conversations, f->id);
    fv_bridge_post(f->w->bridge, &f->back, true);
}

static void on_forgotten(fv_rpc_op *op, bool ok) {
    forget *f = op->owner;
    Fovea__Handoff__V1__ForgetReply m = FOVEA__HANDOFF__V1__FORGET_REPLY__INIT;
    (void)ok;
    if (f->call) {
        fv_rpc_call_set_user(f->call, NULL);
        fv_rpc_call_finish(f->call, fv_rpc_call_send(f->call, &m.base));
    }
    free(f);
}

static fv_status forget_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    const fv_decode_worker *w = fv_rpc_call_service(c);
    fv_caller who;
    ProtobufCMessage *m;
    FV_TRY(fv_caller_identify(w->opt.callers, c, &who));
    FV_TRY(fv_caller_check_request(&who, NULL, NULL));
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__forget_request__descriptor, message, &m));
    forget *f = calloc(1, sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    *f = (forget){.job = {.run = run_forget, .owner = f},
                  .back = {.done = on_forgotten, .owner = f},
                  .w = fv_rpc_call_service(c),
                  .call = c};
    fv_status st =
        fv_conversation_read(&((const Fovea__Handoff__V1__ForgetRequest *)m)->conversation, f->id);
    if (st == FV_OK) st = fv_jobs_post(f->w->jobs, &f->job);
    if (st != FV_OK)
        free(f);
    else
        fv_rpc_call_set_user(c, f);
    return st;
}

static void forget_end(fv_rpc_call *c, const fv_rpc_end *end) {
    forget *f = fv_rpc_call_user(c);
    (void)end;
    if (f) f->call = NULL;
}

fv_rpc_service fv_decode_service(fv_decode_worker *w) {
    static const fv_rpc_method methods[] = {
        {.path = "/fovea.handoff.v1.Decode/Decode",
         .peers = FV_MEMBER_ROUTER,
         .kind = FV_RPC_SERVER_STREAM,
         .message_max = MESSAGE_MAX,
         .queue_max = QUEUE_BYTES,
         .calls_max = CALLS_MAX,
         .events = {.on_message = on_message,
                    .on_writable = on_writable,
                    .on_cancel = on_cancel,
                    .on_end = on_end}},
        {.path = "/fovea.handoff.v1.Decode/Forget",
         .peers = FV_MEMBER_ROUTER,
         .kind = FV_RPC_UNARY,
         .message_max = 4 << 10,
         .calls_max = CALLS_MAX,
         .events = {.on_message = forget_message, .on_end = forget_end}},
    };
    return (fv_rpc_service){methods, sizeof methods / sizeof methods[0], w, NULL};
}
