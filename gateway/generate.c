/* Answers a completion: one HTTP request, and one Generate call for each choice of each prompt.
 *
 *   read the JSON --> fetch http(s) URLs --> decode videos as the model takes them --> n calls
 *   n calls --Accepted--> (stream: 200) --tokens--> chunks or text --> the end
 *                        |  a failure before the first Accepted: its HTTP status
 *                        '- later: an error in the stream, or its HTTP status if nothing was sent
 *
 * A stream that is not accepted soon begins without that, so that proxies see that its server lives;
 * whatever writes nothing for a while gets a comment (alive.h). Requests that are wrong are refused
 * sooner, with their HTTP status.
 *
 * When the client disconnects, the calls are cancelled, and the task is freed once the last call is
 * over. While a stream is full, its calls are paused, which puts back-pressure on the fleet. */
#include "gateway/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "gateway/response.h"

/* Drops the message once the calls have it, or it is no longer needed. Until then its body counts
 * against bodies_max. */
void fv_answer_forget(fv_answer *a) {
    fv_answer_forget_media(a);
    fovea__inference__v1__generate_request__init(&a->request.message);
    fv_reading_end(&a->reading);
}

static void answer_free(fv_answer *a) {
    fv_gateway *g = a->gateway;
    fv_answer_forget(a);
    fv_alive_leave(&a->alive);
    for (int32_t i = 0; i < a->n_choice; i++) fv_choice_fini(&a->choices[i]);
    free(a->choices);
    fv_responding_free(a->responding);
    json_decref(a->tools);
    fv_arena_fini(&a->arena);
    free(a);
    fv_gateway_task_gone(g);
}

static void maybe_free(fv_answer *a) {
    if (!a->http && a->n_call == 0) answer_free(a);
}

void fv_answer_cancel_calls(fv_answer *a) {
    a->over = true;
    fv_alive_leave(&a->alive);
    for (int32_t i = 0; i < a->n_choice; i++)
        if (a->choices[i].call) fv_rpc_call_cancel(a->choices[i].call);
}

/* ---- a call ------------------------------------------------------------------------------- */

static void pause_if_full(fv_choice *c) {
    if (c->paused || !c->call || !fv_http_full(c->answer->http)) return;
    c->paused = true;
    fv_rpc_call_pause(c->call);
}

static void on_writable(fv_gateway_task *t) {
    fv_answer *a = (fv_answer *)t;
    for (int32_t i = 0; i < a->n_choice; i++) {
        fv_choice *c = &a->choices[i];
        if (!c->paused || !c->call) continue;
        c->paused = false;
        fv_rpc_call_resume(c->call);
    }
}

static fv_status on_message(fv_rpc_call *call, grpc_byte_buffer *message) {
    fv_choice *c = fv_rpc_call_user(call);
    ProtobufCMessage *m;
    if (!c->answer->http || c->answer->over) return FV_OK;
    FV_TRY(
        fv_rpc_call_unpack(call, &fovea__inference__v1__generate_event__descriptor, message, &m));
    fv_status st = fv_choice_message(c, (const Fovea__Inference__V1__GenerateEvent *)m);
    pause_if_full(c);
    return st;
}

/* ---- the end ---------------------------------------------------------------------------- */

/* Sums the usage: choices share a prompt, so it counts once. */
fv_api_usage fv_answer_usage(const fv_answer *a) {
    fv_api_usage u = {0};
    for (int32_t i = 0; i < a->n_choice; i++) {
        if (i % a->request.n == 0) u.n_prompt += a->choices[i].usage.n_prompt;
        if (i % a->request.n == 0) u.n_cached += a->choices[i].usage.n_cached;
        u.n_answer += a->choices[i].usage.n_answer;
        u.n_drafted += a->choices[i].usage.n_drafted;
        u.n_drafts_kept += a->choices[i].usage.n_drafts_kept;
        u.n_thought += a->choices[i].usage.n_thought;
        u.thinks |= a->choices[i].usage.thinks;
    }
    return u;
}

/* param: the field to blame; "": as the sentence says. */
void fv_answer_fail(fv_answer *a, fv_status st, const char *why, const char *param,
                    int64_t retry_ms) {
    if (a->over) return;
    if (a->streaming) {
        fv_http_set_error(a->http, why);
        a->output->fail(a, st, why, param);
    } else {
        fv_reply_error(a->http, st, why, param, retry_ms);
    }
    fv_answer_cancel_calls(a);
}

static void on_call_end(fv_rpc_call *call, const fv_rpc_end *end) {
    fv_choice *c = fv_rpc_call_user(call);
    fv_answer *a = c->answer;
    c->call = NULL;
    c->lane->n_call--;
    a->n_call--;
    if (a->http && !a->over) {
        if (end->status != FV_OK)
            fv_answer_fail(a, end->status, fv_end_text(end), "", end->retry_ms);
        else if (!c->finished)
            fv_answer_fail(a, FV_EDATA, "the router ended the answer before it was finished", "",
                           -1);
        else if (--a->n_left == 0)
            a->output->complete(a);
    }
    maybe_free(a);
}

/* Ends the request's span. The HTTP status is 0 where no answer was begun. */
static void trace(const fv_answer *a) {
    fv_api_usage usage = fv_answer_usage(a);
    const fv_span_field fields[] = {
        {"http.request.method", .text = fv_http_method(a->http)},
        {"http.route", .text = fv_http_path(a->http)},
        {"http.response.status_code", .number = fv_http_status(a->http)},
        {"fovea.choices", .number = a->n_choice},
        {"gen_ai.usage.input_tokens", .number = usage.n_prompt},
        {"gen_ai.usage.output_tokens", .number = usage.n_answer}};
    fv_span_end(&a->span, fv_clock_s(), -1, FV_SPAN_FIELDS(fields));
}

static void on_http_ended(fv_gateway_task *t) {
    fv_answer *a = (fv_answer *)t;
    trace(a);
    fv_alive_leave(&a->alive);
    a->http = NULL;
    fv_answer_forget(a);
    fv_answer_cancel_calls(a);
    maybe_free(a);
}

/* ---- the beginning ---------------------------------------------------------------------- */

static fv_status name_answer(fv_answer *a) {
    uint64_t n[2];
    FV_TRY(fv_random_bytes(n, sizeof n));
    snprintf(a->id, sizeof a->id, "%s%016llx%016llx", a->output->prefix, (unsigned long long)n[0],
             (unsigned long long)n[1]);
    a->names = (fv_api_names){.kind = a->request.kind,
                              .id = a->id,
                              .model = "", /* Accepted names it */
                              .created = fv_log_time_ns() / 1000000000};
    a->seed = a->request.seeded ? a->request.message.sampling->seed : n[0] ^ n[1];
    return FV_OK;
}

static fv_status start_call(fv_answer *a, int32_t index) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_call_end};
    fv_choice *c = &a->choices[index];
    Fovea__Inference__V1__GenerateRequest *m = &a->request.message;
    const int32_t n = a->request.n;
    *c = (fv_choice){.answer = a,
                     .index = index,
                     .logprobs = {.kind = a->request.kind, .as_ids = a->request.as_ids}};
    m->prompt = a->request.prompts[index / n];
    m->sampling->seed = a->seed + (uint64_t)(index % n); /* each choice of a prompt has its own */
    /* The router shares the fleet by client address where there are no tenants and it trusts this
     * gateway. */
    const fv_rpc_metadata metadata[] = {{"x-forwarded-for", fv_http_client(a->http)},
                                        a->reading.caller};
    FV_TRY(fv_gateway_lane(a->gateway, &c->lane));
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Generate",
                               .forwarded_for = fv_http_client(a->http),
                               .events = &events,
                               .user = c,
                               .deadline_ms = a->gateway->opt.deadline_ms,
                               .trace = &a->span.context,
                               .metadata = metadata,
                               .n_metadata = 1 + (size_t)a->reading.n_caller,
                               .queue_max = a->gateway->opt.body_max};
    grpc_byte_buffer *packed;
    FV_TRY(fv_request_memory_pack(a->reading.held, m, &packed));
    fv_status st = fv_rpc_call_open(c->lane->channel, &opt, &c->call);
    if (st != FV_OK) {
        grpc_byte_buffer_destroy(packed);
        return st;
    }
    c->lane->n_call++;
    a->n_call++;
    if (a->request.kind == FV_API_CHAT) { /* a chat returns its prompt once */
        m->prompt_tokens = false;
        m->prompt_alternatives_case = 0;
    }
    FV_TRY(fv_rpc_call_send_buffer(c->call, packed));
    fv_rpc_call_close_send(c->call);
    return FV_OK;
}

/* Limits n: each choice is queued as a whole request of its own, images included, until it is
 * sent. */
static fv_status check_copies(const fv_answer *a) {
    const fv_api_request *q = &a->request;
    Fovea__Inference__V1__GenerateRequest m = q->message;
    size_t bytes = 0;
    for (int32_t i = 0; i < q->n_prompt; i++) {
        m.prompt = q->prompts[i];
        bytes += protobuf_c_message_get_packed_size(&m.base) * (size_t)q->n;
    }
    if (bytes <= a->gateway->opt.bodies_max) return FV_OK;
    return FV_FAIL(FV_ENOMEM,
                   "%d prompts, %d answers to each, are %zu bytes of requests: too large; lower n",
                   q->n_prompt, q->n, bytes);
}

static fv_status start_calls(fv_answer *a) {
    const int32_t n = a->request.n_prompt * a->request.n;
    FV_TRY(name_answer(a));
    if (a->output->prepare) FV_TRY(a->output->prepare(a));
    FV_TRY(check_copies(a));
    a->choices = calloc((size_t)n, sizeof *a->choices);
    if (!a->choices) return FV_FAIL(FV_ENOMEM, "out of memory for %d answers", n);
    a->n_choice = a->n_left = n;
    a->may_cut = a->request.message.n_stop > 0 && !a->request.message.include_stop;
    for (int32_t i = 0; i < n; i++) FV_TRY(start_call(a, i));
    return FV_OK;
}

static fv_span begin_span(const fv_http_request *r, const char *name) {
    const char *header = fv_http_header(r, FV_TRACE_KEY);
    fv_trace_context parent = {0};
    if (!header || !fv_trace_parse(header, strlen(header), &parent)) parent = fv_span_new_trace();
    return fv_span_begin(name, FV_SPAN_SERVER, &parent, fv_http_read_s(r));
}

/* Answers the HTTP request with the last error. `a` is freed when that ends. */
void fv_answer_refuse(fv_answer *a, fv_status st, const char *param) {
    char why[FV_SENTENCE_MAX];
    fv_last_sentence(param, why);
    fv_answer_fail(a, st, why, param, -1);
    fv_answer_forget(a);
}

void fv_answer_begin_calls(fv_answer *a) {
    const bool loads = fv_responding_must_load(a);
    fv_status st = loads ? fv_responding_load(a) : start_calls(a);
    if (st == FV_OK && loads) return;
    if (st == FV_OK)
        fv_answer_forget(a);
    else
        fv_answer_refuse(a, st, "");
}

static void begin(void *user) {
    fv_answer *a = user;
    a->span = begin_span(a->http, a->output->name);
    if (a->request.stream) fv_alive_join(a->gateway->alive, &a->alive, fv_answer_on_quiet);
    fv_answer_get_media(a);
}

static const fv_output *output_of(fv_api_kind kind) {
    return kind == FV_API_CHAT       ? &fv_chat_output
           : kind == FV_API_RESPONSE ? &fv_response_output
                                     : &fv_text_output;
}

void fv_generate(fv_gateway *g, fv_http_request *r, fv_api_kind kind) {
    fv_answer *a = calloc(1, sizeof *a);
    if (!a) {
        fv_reply_error(r, FV_ENOMEM, "out of memory", "", -1);
        return;
    }
    a->task =
        (fv_gateway_task){.ended = on_http_ended, .writable = on_writable, .reading = &a->reading};
    a->output = output_of(kind);
    a->gateway = g;
    a->http = r;
    g->n_task++;
    fv_http_set_user(r, &a->task);
    fv_reading_begin(&a->reading, g, r, kind, &a->request, begin, a);
}
