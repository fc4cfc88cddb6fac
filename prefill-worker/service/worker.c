/* Runs the prefill worker's loop thread: turns calls into tasks, and sends the tasks' events to their
 * calls. A call and its task may end in either order; the task is freed when both have. */
#include "prefill-worker/service/worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "prefill-worker/service/internal.h"
#include "rpc/message.h"
#include "serving/worker/request.h"
#include "serving/worker/token_message.h"
#include "transport/grpc.h"

enum {
    MESSAGE_MAX = (64 << 20) + (1 << 20), /* a client's largest request, and the router's fields */
    QUEUE_BYTES = FV_PROMPT_BYTES_MAX + (1 << 20), /* events of a call that wait */
    N_PEER_MAX = 64, /* connections to decode workers; at most so many are kept idle */
};

typedef Fovea__Handoff__V1__PrefillEvent event_message;

/* ---- decode workers --------------------------------------------------------------------- */

static void maybe_closed(fv_prefill_worker *w);

static void on_peer_closed(void *user) {
    fv_prefill_worker *w = user;
    w->n_peer--;
    maybe_closed(w);
}

static void close_peer(fv_prefill_worker *w, fv_decode_peer *p) {
    fv_decode_peer **at = &w->peers;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    fv_transport_close(p->transport, on_peer_closed, w);
    free(p->address);
    free(p);
}

/* Drops the least recently used peer that is not in use. */
static void make_place(fv_prefill_worker *w) {
    fv_decode_peer *idle = NULL;
    for (fv_decode_peer *p = w->peers; p; p = p->next)
        if (p->n_task == 0) idle = p;
    if (w->n_peer >= N_PEER_MAX && idle) close_peer(w, idle);
}

static fv_status open_peer(fv_prefill_worker *w, const char *address, fv_decode_peer **out) {
    fv_status valid = fv_address_check(address);
    if (valid != FV_OK) return fv_fail_prefix(valid, "decode_address '%s'", address);
    make_place(w);
    fv_decode_peer *p = calloc(1, sizeof *p);
    if (p) p->address = strdup(address);
    if (!p || !p->address) {
        free(p);
        return FV_FAIL(FV_ENOMEM, "out of memory for a decode worker");
    }
    fv_transport_grpc_options opt = {.bridge = w->opt.bridge,
                                     .jobs = w->jobs,
                                     .target = p->address,
                                     .tls = w->opt.tls,
                                     .pairs = w->pairs};
    fv_status st = fv_transport_grpc(&opt, &p->transport);
    if (st != FV_OK) {
        free(p->address);
        free(p);
        return st;
    }
    w->n_peer++;
    *out = p;
    return FV_OK;
}

/* Finds or opens the peer of an address and moves it to the front of the list. */
static fv_status find_peer(fv_prefill_worker *w, const char *address, fv_decode_peer **out) {
    fv_decode_peer **at = &w->peers, *p;
    while (*at && strcmp((*at)->address, address) != 0) at = &(*at)->next;
    p = *at;
    if (p)
        *at = p->next;
    else
        FV_TRY(open_peer(w, address, &p));
    p->next = w->peers;
    w->peers = p;
    *out = p;
    return FV_OK;
}

/* ---- tasks ------------------------------------------------------------------------------ */

fv_status fv_prefill_worker_enter(fv_prefill_worker *w) {
    if (w->n_task >= w->opt.queue)
        return FV_FAIL(FV_EBUSY,
                       "this worker has %d requests, its limit: try another worker, or later",
                       w->n_task);
    w->n_task++;
    return FV_OK;
}

void fv_prefill_worker_leave(fv_prefill_worker *w) {
    w->n_task--;
    if (w->opt.on_change && !w->closing) w->opt.on_change(w->opt.user);
    maybe_closed(w);
}

static void task_free(fv_task *t) {
    fv_prefill_worker *w = t->worker;
    if (t->peer) t->peer->n_task--;
    fv_task_give_pixels(t);
    fv_task_fini(t);
    free(t);
    fv_prefill_worker_leave(w);
}

static void on_wake(fv_job *job) {
    fv_prefill_worker *w = job->owner;
    atomic_store(&w->woken, false); /* the queue checks the tasks after this */
}

/* Cancels a task, and wakes the computing thread to end it. */
static void abandon(fv_task *t) {
    fv_prefill_worker *w = t->worker;
    t->call = NULL;
    if (!t->posted) return;
    atomic_store(&t->cancelled, true);
    if (!atomic_exchange(&w->woken, true)) fv_jobs_post_followup(w->jobs, &w->wake);
}

/* ---- events of tasks -------------------------------------------------------------------- */

/* Ends the call and its task, because an event could not be sent. */
static void give_up(fv_task *t, fv_status st) {
    if (!t->call) return;
    fv_rpc_call_finish(t->call, st);
    abandon(t);
}

static void send_event(fv_task *t, event_message *e) {
    fv_status st = t->call ? fv_rpc_call_send(t->call, &e->base) : FV_OK;
    if (st != FV_OK) give_up(t, st);
}

static void on_begun(fv_rpc_op *op, bool ok) {
    fv_task *t = op->owner;
    (void)ok;
    event_message e = FOVEA__HANDOFF__V1__PREFILL_EVENT__INIT;
    Fovea__Handoff__V1__Begun b = FOVEA__HANDOFF__V1__BEGUN__INIT;
    Fovea__Handoff__V1__Ticket ticket = FOVEA__HANDOFF__V1__TICKET__INIT;
    ticket.id = (ProtobufCBinaryData){sizeof t->ticket.id, t->ticket.id};
    ticket.epoch = t->ticket.epoch;
    b.ticket = &ticket;
    b.bytes_reserved = t->bytes_reserved;
    b.n_prompt = (uint32_t)t->prefill.prompt.n;
    b.bytes_bound = t->bytes_bound;
    b.thinks = t->prefill.generation.rules.reasoning == FV_REASONING_OPEN;
    b.thought = t->prefill.generation.rules.reasoning == FV_REASONING_OVER;
    b.n_prompt_cached = (uint32_t)fv_task_cached(t);
    b.caches = t->prefix.taken;
    b.first_by_decode = t->prefix.left > 0;
    e.event_case = FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_BEGUN;
    e.begun = &b;
    send_event(t, &e);
}

static Fovea__Inference__V1__FinishReason finish_reason(fv_finish f) {
    static const Fovea__Inference__V1__FinishReason reasons[] = {
        [FV_FINISH_NOT] = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_UNSPECIFIED,
        [FV_FINISH_LENGTH] = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH,
        [FV_FINISH_EOS] = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS,
        [FV_FINISH_STOP] = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP,
    };
    return reasons[f];
}

static void send_prompt(fv_task *t) {
    for (size_t i = 0; i < t->n_told; i++) {
        event_message e = FOVEA__HANDOFF__V1__PREFILL_EVENT__INIT;
        e.event_case = FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_PROMPT;
        e.prompt = &t->told[i];
        send_event(t, &e);
    }
    t->n_told = 0;
    fv_arena_fini(&t->told_arena); /* a slow reader keeps the packed events only */
}

static void on_first(fv_rpc_op *op, bool ok) {
    fv_task *t = op->owner;
    (void)ok;
    event_message e = FOVEA__HANDOFF__V1__PREFILL_EVENT__INIT;
    Fovea__Handoff__V1__FirstToken first = FOVEA__HANDOFF__V1__FIRST_TOKEN__INIT;
    Fovea__Inference__V1__Tokens tokens = FOVEA__INFERENCE__V1__TOKENS__INIT;
    const fv_tokenizer *texts = t->msg->request->token_texts ? t->worker->opt.engine->tok : NULL;
    fv_arena arena = {0}; /* the computing thread may be using the task's */
    Fovea__Inference__V1__Token *token = NULL;
    fv_status st = fv_token_to_message(&t->prefill.token, t->prefill.digest, texts, &arena, &token);
    tokens.index = (uint32_t)t->msg->n_replay;
    tokens.tokens = &token;
    tokens.n_tokens = 1;
    tokens.text = t->prefill.token_text;
    if (t->prefill.has_token) first.tokens = &tokens;
    first.finish = finish_reason(t->prefill.finish);
    e.event_case = FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_FIRST_TOKEN;
    e.first_token = &first;
    t->worker->n_tokens += t->prefill.has_token;
    send_prompt(t);
    if (st == FV_OK)
        send_event(t, &e);
    else
        give_up(t, st);
    fv_arena_fini(&arena);
}

/* Sends the last message, this worker's half of the report, and finishes the call. */
static void send_report(fv_task *t) {
    event_message e = FOVEA__HANDOFF__V1__PREFILL_EVENT__INIT;
    Fovea__Handoff__V1__HandedOff done = FOVEA__HANDOFF__V1__HANDED_OFF__INIT;
    fv_status st = fv_task_report(t, &done.report);
    e.event_case = FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_HANDED_OFF;
    e.handed_off = &done;
    if (st == FV_OK) fv_task_record(t, done.report);
    if (st == FV_OK) st = fv_rpc_call_send(t->call, &e.base);
    fv_rpc_call_finish(t->call, st);
    fv_failpoint_reached(FV_FAILPOINT_PREFILL_OVER);
}

static void send_failure(fv_task *t) {
    if (t->refusal != FV_REFUSED_NONE)
        fv_rpc_call_trailer(t->call, FV_REFUSAL_KEY, fv_refusal_name(t->refusal));
    fv_rpc_call_finish(t->call, fv_error_raise(&t->fault));
}

static void log_over(const fv_task *t) {
    const char *id = t->msg->request->request_id;
    char trace[2 * FV_TRACE_ID_BYTES + 1];
    fv_trace_id_print(&t->span.context, trace);
    if (t->fault.status == FV_OK)
        FV_LOG(INFO, PREFILL,
               "req=%s tenant?=%s trace?=%s event=done prompt_tokens=%d visual_tokens=%d "
               "cached_tokens=%d "
               "queued_s=%.4f vision_s=%.4f "
               "prefill_s=%.4f "
               "bytes=%" PRIu64 " to=%s",
               id, t->msg->tenant, trace, t->prefill.prompt.n, t->prefill.prompt.n_visual,
               fv_task_cached(t), t->began_s - t->arrived_s, t->prefill.s_vision,
               t->prefill.s_prefill, t->sent.bytes, t->peer ? t->peer->address : "nobody");
    else if (t->call && fv_status_is_callers(t->fault.status))
        FV_LOG(INFO, PREFILL, "req=%s tenant?=%s trace?=%s event=%s status=%s reason=\"%s\"", id,
               t->msg->tenant, trace, t->fault.status == FV_ECANCELLED ? "cancelled" : "refused",
               fv_status_grpc_name(t->fault.status), t->fault.text);
    else if (t->call)
        FV_LOG(WARN, PREFILL, "req=%s tenant?=%s trace?=%s event=failed status=%s reason=\"%s\"",
               id, t->msg->tenant, trace, fv_status_grpc_name(t->fault.status), t->fault.text);
    else
        FV_LOG(INFO, PREFILL, "req=%s tenant?=%s trace?=%s event=cancelled", id, t->msg->tenant,
               trace);
}

static void on_over(fv_rpc_op *op, bool ok) {
    fv_task *t = op->owner;
    fv_prefill_worker *w = t->worker;
    (void)ok;
    t->posted = false;
    if (t->fault.status == FV_OK)
        w->n_done++;
    else if (!fv_status_is_callers(t->fault.status))
        w->n_failed++;
    w->bytes_nccl += t->sent.ways.bytes_oob;
    w->bytes_grpc += t->sent.bytes - t->sent.ways.bytes_oob;
    w->n_fallback += t->sent.ways.n_fallback;
    log_over(t);
    fv_task_trace(t, fv_status_grpc_code(t->fault.status));
    if (t->call && t->fault.status == FV_OK)
        send_report(t);
    else if (t->call)
        send_failure(t);
    t->call = NULL;
    if (!t->call_alive) task_free(t);
}

/* ---- the call --------------------------------------------------------------------------- */

static fv_status on_start(fv_rpc_call *c) {
    fv_prefill_worker *w = fv_rpc_call_service(c);
    fv_caller who;
    FV_TRY(fv_caller_identify(w->opt.callers, c, &who));
    FV_TRY(fv_prefill_worker_enter(w));
    fv_task *t = calloc(1, sizeof *t);
    if (!t) {
        fv_prefill_worker_leave(w);
        return FV_FAIL(FV_ENOMEM, "out of memory for another request");
    }
    t->worker = w;
    t->call = c;
    t->who = who;
    t->call_alive = true;
    t->arrived_s = fv_clock_s();
    fv_trace_context trace = fv_rpc_call_trace(c);
    t->span = fv_span_begin("Prefill", FV_SPAN_SERVER, &trace, t->arrived_s);
    int64_t left_ms = fv_rpc_call_left_ms(c);
    if (left_ms < INT64_MAX) t->deadline_s = t->arrived_s + 1e-3 * (double)left_ms;
    t->job = (fv_job){.run = fv_task_enqueue, .owner = t};
    t->begun = (fv_rpc_op){.done = on_begun, .owner = t};
    t->first = (fv_rpc_op){.done = on_first, .owner = t};
    t->over = (fv_rpc_op){.done = on_over, .owner = t};
    fv_rpc_call_set_user(c, t);
    return FV_OK;
}

static fv_status on_request(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_task *t = fv_rpc_call_user(c);
    fv_prefill_worker *w = t->worker;
    ProtobufCMessage *m;
    fv_status st =
        fv_rpc_unpack(&fovea__handoff__v1__prefill_request__descriptor, message, &t->arena, &m);
    if (st != FV_OK) return st == FV_EDATA ? FV_EINVAL : st;
    t->msg = (const fv_prefill_message *)m;
    if (!t->msg->request) return FV_FAIL(FV_EINVAL, "PrefillRequest.request is missing");
    FV_TRY(fv_caller_check_request(&t->who, t->msg->request->request_id, t->msg->decode_address));
    FV_TRY(fv_task_take_pixels(t));
    if (t->msg->decode_address[0]) {
        FV_TRY(find_peer(w, t->msg->decode_address, &t->peer));
        t->peer->n_task++;
        t->transport = t->peer->transport;
    }
    t->born_s = t->arrived_s - 1e-3 * t->msg->age_ms;
    t->until_s = fv_clock_s() + 1e-3 * (double)fv_rpc_call_left_ms(c);
    fv_grammar_spec form;
    FV_TRY(fv_fail_caller(fv_request_grammar(t->msg->request->rules, t->msg->reasoning, &form)));
    if (form.kind)
        fv_forms_add(w->forms, &t->form, &form,
                     &(fv_form_share){fv_task_share(t), t->msg->tenant_weight}, w->jobs, &t->job);
    else
        FV_TRY(fv_jobs_post(w->jobs, &t->job));
    t->posted = true;
    if (w->opt.on_change) w->opt.on_change(w->opt.user);
    return FV_OK;
}

static void on_cancel(fv_rpc_call *c) {
    fv_task *t = fv_rpc_call_user(c);
    if (t) abandon(t);
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_task *t = fv_rpc_call_user(c);
    if (!t) return;
    t->call = NULL;
    t->call_alive = false;
    if (t->posted) return;
    fv_task_trace(t, (int)end->code);
    task_free(t);
}

fv_rpc_service fv_prefill_worker_service(fv_prefill_worker *w) {
    static const fv_rpc_method methods[] = {
        {.path = "/fovea.handoff.v1.Prefill/Prefill",
         .peers = FV_MEMBER_ROUTER,
         .kind = FV_RPC_SERVER_STREAM,
         .message_max = MESSAGE_MAX,
         .queue_max = QUEUE_BYTES,
         .events = {.on_start = on_start,
                    .on_message = on_request,
                    .on_cancel = on_cancel,
                    .on_end = on_end}},
        {.path = FV_TOKENIZE_PATH,
         .peers = FV_MEMBER_ROUTER,
         .message_max = FV_TOKENIZE_BYTES_MAX,
         .events = {.on_message = fv_tokenize_on_message, .on_end = fv_tokenize_on_end}},
        {.path = FV_DETOKENIZE_PATH,
         .peers = FV_MEMBER_ROUTER,
         .message_max = FV_TOKENIZE_BYTES_MAX,
         .events = {.on_message = fv_detokenize_on_message, .on_end = fv_tokenize_on_end}},
        {.path = FV_GET_TOKENIZER_PATH,
         .peers = FV_MEMBER_ROUTER,
         .message_max = 4096,
         .events = {.on_message = fv_get_tokenizer_on_message, .on_end = fv_tokenize_on_end}},
    };
    return (fv_rpc_service){methods, sizeof methods / sizeof *methods, w, NULL};
}

/* ---- opening and closing ---------------------------------------------------------------- */

static fv_status check_options(const fv_prefill_worker_options *opt) {
    if (opt->batch < 1 || opt->batch > FV_PREFILL_BATCH_MAX)
        return FV_FAIL(FV_EINVAL, "batch is %d; it must be 1..%d", opt->batch,
                       FV_PREFILL_BATCH_MAX);
    if (opt->pixels && opt->pixels_request > opt->pixels)
        return FV_FAIL(FV_EINVAL,
                       "a request may bring %" PRId64 " pixels, and %" PRId64
                       " may be here at a time: lower --request-pixels, or raise --pixels",
                       opt->pixels_request, opt->pixels);
    if (opt->queue < 1) return FV_FAIL(FV_EINVAL, "queue is %d; it must be 1 or more", opt->queue);
    return FV_OK;
}

static fv_status open_pairs(fv_prefill_worker *w) {
    fv_peers_options pairs = w->opt.pairs;
    if (!pairs.ops) return FV_OK;
    pairs.bridge = w->opt.bridge;
    pairs.device = w->opt.engine->be.device;
    return fv_peers_open(&pairs, &w->pairs);
}

fv_status fv_prefill_worker_open(const fv_prefill_worker_options *opt, fv_prefill_worker **out) {
    FV_TRY(check_options(opt));
    fv_prefill_worker *w = calloc(1, sizeof *w);
    if (!w) return FV_FAIL(FV_ENOMEM, "out of memory for a prefill worker");
    w->opt = *opt;
    w->wake = (fv_job){.run = on_wake, .owner = w};
    fv_jobs_options jobs = {.limit = (size_t)opt->queue, .work = fv_prefill_line_work, .user = w};
    fv_status st;
    FV_TRY_GOTO(fv_prefill_line_open(w), st, fail);
    FV_TRY_GOTO(fv_pulse_open(&w->pulse), st, fail);
    FV_TRY_GOTO(fv_reading_open(&w->reading), st, fail);
    FV_TRY_GOTO(fv_forms_open(&w->forms), st, fail);
    FV_TRY_GOTO(fv_jobs_start(&jobs, &w->jobs), st, fail);
    FV_TRY_GOTO(fv_tier_threads_open(w), st, fail);
    FV_TRY_GOTO(open_pairs(w), st, fail);
    *out = w;
    return FV_OK;
fail:
    fv_tier_threads_close(w);
    fv_forms_close(w->forms);
    fv_reading_close(w->reading);
    fv_jobs_stop(w->jobs);
    fv_prefill_line_close(w);
    fv_pulse_close(w->pulse);
    free(w);
    return st;
}

static void on_pairs_closed(void *user) {
    fv_prefill_worker *w = user;
    void (*closed)(void *) = w->closed;
    user = w->closed_user;
    fv_forms_close(w->forms); /* no task is left, so no thread waits for another */
    fv_tier_threads_close(w);
    fv_reading_close(w->reading);
    fv_jobs_stop(w->jobs);
    fv_prefill_line_close(w);
    fv_pulse_close(w->pulse);
    free(w);
    closed(user);
}

/* Closes a worker that is closing once it has no request and no connection left. */
static void maybe_closed(fv_prefill_worker *w) {
    if (!w->closing || w->n_task > 0) return;
    while (w->peers) close_peer(w, w->peers);
    if (w->n_peer == 0) fv_peers_close(w->pairs, on_pairs_closed, w);
}

void fv_prefill_worker_close(fv_prefill_worker *w, void (*closed)(void *user), void *user) {
    if (!w) {
        closed(user);
        return;
    }
    w->closing = true;
    w->closed = closed;
    w->closed_user = user;
    maybe_closed(w);
}

/* The sums of both tiers: segments and bytes are of the one that knows them, the disk. */
static void count_tier(fv_kv_tier *t, Fovea__Inference__V1__Load *load) {
    fv_tier_counters c = t->ops->count(t);
    load->n_disk_segments += c.n_segment;
    load->bytes_disk += c.bytes;
    load->n_disk_given_up += c.n_given_up;
    load->bytes_tier_read += c.bytes_read;
    load->bytes_tier_written += c.bytes_written;
    load->n_tier_damaged += c.n_damaged;
    load->n_tier_failed += c.n_failed;
}

void fv_prefill_worker_load(const fv_prefill_worker *w, Fovea__Inference__V1__Load *load) {
    int32_t started = atomic_load(&w->n_started);
    load->n_running = (uint32_t)started;
    load->n_queued = (uint32_t)(w->n_task > started ? w->n_task - started : 0);
    load->bytes_capacity = w->opt.kv_bytes;
    load->bytes_held = atomic_load(&w->bytes_held);
    load->pixels_capacity = (uint64_t)w->opt.pixels;
    load->pixels_held = atomic_load(&w->pixels_held);
    load->bytes_prefix = atomic_load(&w->prefix_bytes);
    load->n_prefix_given_up = atomic_load(&w->prefix_given_up);
    for (int32_t k = 0; k < w->opt.n_tier; k++) count_tier(w->opt.tier[k], load);
    load->bytes_grpc = w->bytes_grpc;
    load->bytes_nccl = w->bytes_nccl;
    load->n_fallback = w->n_fallback;
    if (w->pairs) {
        fv_peers_counters pairs = fv_peers_count(w->pairs);
        load->n_pairs = pairs.n_now;
        load->n_pairs_failed = pairs.n_failed;
    }
    load->n_done = w->n_done;
    load->n_failed = w->n_failed;
    load->tokens_in = atomic_load(&w->entries_in);
    load->tokens_out = w->n_tokens;
    load->seconds_busy = fv_jobs_busy_s(w->jobs);
}

fv_kept_log *fv_prefill_worker_kept(const fv_prefill_worker *w) { return w->line.kept; }

fv_pulse *fv_prefill_worker_pulse(const fv_prefill_worker *w) { return w->pulse; }

fv_vital_signs fv_prefill_worker_signs(const fv_prefill_worker *w) {
    return (fv_vital_signs){.n_good = atomic_load(&w->n_good),
                            .n_bad = atomic_load(&w->n_bad),
                            .n_moved = fv_engine_layers_run(w->opt.engine),
                            .lost = fv_backend_lost(&w->opt.engine->be)};
}
