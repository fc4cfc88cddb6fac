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
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/grow.h"
#include "common/log.h"
#include "common/random.h"
#include "gateway/api/answer.h"
#include "gateway/decode.h"
#include "gateway/model.h"
#include "telemetry/otlp/spans.h"

typedef Fovea__Inference__V1__Accepted accepted_message;
typedef Fovea__Inference__V1__Finished finished_message;
typedef Fovea__Inference__V1__PromptTokens prompt_message;
typedef Fovea__Inference__V1__Tokens tokens_message;

enum { KEPT_MAX = 64 << 20 }; /* bytes of an unstreamed answer */

typedef struct choice {
    struct answer *answer;
    int32_t index;
    fv_lane *lane;
    fv_rpc_call *call; /* NULL: over, or not begun */
    bool paused, finished, begun;
    char *text; /* [n_text] of an unstreamed answer; owned, terminated */
    size_t n_text, cap_text;
    uint32_t n_char; /* characters of the text so far, that of an echoed prompt included */
    fv_api_logprobs logprobs;
    fv_api_list ids, prompt_ids, prompt_logprobs; /* of an unstreamed answer */
    json_t *prompt_ids_held;                      /* of a stream until it has all; owned */
    json_t *fovea;                                /* owned; NULL: none */
    Fovea__Inference__V1__FinishReason reason;
    fv_api_usage usage;
} choice;

/* Fetches the bytes at one URL of the request. */
typedef struct fetching {
    struct answer *answer;
    const fv_api_url *url;
    fv_fetch *fetch; /* NULL: not begun */
} fetching;

/* Decodes one video of the request. */
typedef struct decoding {
    struct answer *answer;
    const fv_api_video *video;
    fv_decoding *work; /* NULL: not begun */
} decoding;

typedef struct answer {
    fv_gateway_task task; /* first */
    fv_span span;
    fv_gateway *gateway;
    fv_http_request *http; /* NULL: client gone */
    fv_arena arena;
    fv_reading reading; /* owns the message and its images; ended once the calls have packed them */
    fv_api_request request;
    fetching fetches[FV_API_URLS_MAX];
    int32_t n_fetch;          /* not over yet */
    fv_model_question *model; /* NULL: not asked */
    decoding decodings[FV_API_VIDEOS_MAX];
    int32_t n_decoding; /* not over yet */
    fv_api_names names;
    size_t n_kept; /* bytes of the choices' texts and lists */
    char id[48];
    uint64_t seed;  /* of each prompt's first choice */
    int32_t n_call; /* not over yet */
    int32_t n_left; /* choices not finished yet */
    bool streaming, over;
    bool may_cut; /* the request has stop strings that are not part of the text */
    fv_alive_stream alive;
    int32_t n_choice; /* those of the first prompt, those of the second one, ...; 0: not begun */
    choice *choices;  /* [n_choice] owned */
} answer;

/* Drops the message once the calls have it, or it is no longer needed. Until then its body counts
 * against bodies_max. */
static void forget_message(answer *a) {
    for (int32_t i = 0; i < FV_API_URLS_MAX; i++) {
        fv_fetch_free(a->fetches[i].fetch);
        a->fetches[i].fetch = NULL;
    }
    fv_model_question_free(a->model);
    a->model = NULL;
    for (int32_t i = 0; i < FV_API_VIDEOS_MAX; i++) {
        fv_decoding_free(a->decodings[i].work);
        a->decodings[i].work = NULL;
    }
    fovea__inference__v1__generate_request__init(&a->request.message);
    fv_reading_end(&a->reading);
}

static void answer_free(answer *a) {
    fv_gateway *g = a->gateway;
    forget_message(a);
    fv_alive_leave(&a->alive);
    for (int32_t i = 0; i < a->n_choice; i++) {
        free(a->choices[i].text);
        fv_api_logprobs_free(&a->choices[i].logprobs);
        free(a->choices[i].ids.text);
        free(a->choices[i].prompt_ids.text);
        free(a->choices[i].prompt_logprobs.text);
        json_decref(a->choices[i].prompt_ids_held);
        json_decref(a->choices[i].fovea);
    }
    free(a->choices);
    fv_arena_fini(&a->arena);
    free(a);
    fv_gateway_task_gone(g);
}

static void maybe_free(answer *a) {
    if (!a->http && a->n_call == 0) answer_free(a);
}

static void cancel_calls(answer *a) {
    a->over = true;
    fv_alive_leave(&a->alive);
    for (int32_t i = 0; i < a->n_choice; i++)
        if (a->choices[i].call) fv_rpc_call_cancel(a->choices[i].call);
}

/* ---- server-sent events ----------------------------------------------------------------- */

/* Sends JSON as one event, in one piece: some clients take a piece for an event. Takes the JSON. */
static void send_event(answer *a, json_t *json) {
    char *text = json ? json_dumps(json, FV_API_JSON_FLAGS) : NULL, *event = NULL;
    const int n = text ? asprintf(&event, "data: %s\n\n", text) : -1;
    json_decref(json);
    free(text);
    if (n < 0) return;
    fv_http_write(a->http, event, (size_t)n);
    fv_alive_wrote(&a->alive);
    free(event);
}

/* nginx does not buffer an answer with X-Accel-Buffering: no. */
static void begin_stream(answer *a) {
    if (a->streaming) return;
    fv_http_add(a->http, "Cache-Control", "no-cache");
    fv_http_add(a->http, "X-Accel-Buffering", "no");
    fv_http_stream(a->http, "text/event-stream");
    a->streaming = true;
}

static void on_quiet(fv_alive_stream *s) {
    static const char comment[] = ": keep-alive\n\n";
    answer *a = (answer *)(void *)((char *)s - offsetof(answer, alive));
    begin_stream(a);
    if (!fv_http_full(a->http)) fv_http_write(a->http, comment, sizeof comment - 1);
}

static void end_stream(answer *a) {
    static const char done[] = "data: [DONE]\n\n";
    a->over = true;
    fv_alive_leave(&a->alive);
    fv_http_write(a->http, done, sizeof done - 1);
    fv_http_end_stream(a->http);
}

static void send_chunk(const choice *c, const fv_api_choice *part) {
    answer *a = c->answer;
    send_event(a, fv_api_chunk(&a->names, part, a->request.include_usage,
                               a->request.usage_always ? &c->usage : NULL));
}

/* Begins the stream at its first choice. A chat choice's first chunk has its role. */
static void begin_choice(choice *c) {
    if (c->begun) return;
    c->begun = true;
    begin_stream(c->answer);
    if (c->answer->request.kind == FV_API_CHAT)
        send_chunk(c, &(fv_api_choice){.index = c->index, .begins = true, .text = ""});
}

static void pause_if_full(choice *c) {
    if (c->paused || !c->call || !fv_http_full(c->answer->http)) return;
    c->paused = true;
    fv_rpc_call_pause(c->call);
}

static void on_writable(fv_gateway_task *t) {
    answer *a = (answer *)t;
    for (int32_t i = 0; i < a->n_choice; i++) {
        choice *c = &a->choices[i];
        if (!c->paused || !c->call) continue;
        c->paused = false;
        fv_rpc_call_resume(c->call);
    }
}

/* ---- events of a call -------------------------------------------------------------------- */

/* Sets the tokens of the choice's prompt, which a prompt's choices share. */
static void set_prompt(choice *c, uint64_t n) {
    answer *a = c->answer;
    if (c->index % a->request.n == 0) a->task.facts.n_prompt += n - c->usage.n_prompt;
    c->usage.n_prompt = n;
}

/* Takes the model's name from the router: the request may have named a fingerprint, or nothing. */
static fv_status on_accepted(choice *c, const accepted_message *m) {
    answer *a = c->answer;
    char *name;
    set_prompt(c, m->n_prompt);
    c->usage.n_cached = m->n_prompt_cached;
    FV_TRY(fv_arena_strndup(&a->arena, m->model, strlen(m->model), &name));
    a->names.model = name;
    return FV_OK;
}

static fv_status keep_text(choice *c, const char *text) {
    size_t n = strlen(text);
    FV_TRY(fv_grow(&c->text, &c->cap_text, c->n_text + n + 1, 1));
    memcpy(c->text + c->n_text, text, n + 1);
    c->n_text += n;
    return FV_OK;
}

static uint32_t characters(const char *text) {
    uint32_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* Sends or keeps text and what comes with it. The entries of logprobs whose text this is, or all of them
 * with n_char UINT32_MAX, are given out. ids: borrowed; NULL: none. */
static fv_status pass_on(choice *c, const char *text, uint32_t n_char, json_t *ids) {
    answer *a = c->answer;
    json_t *logprobs = NULL;
    if (!a->request.stream) {
        FV_TRY(fv_api_logprobs_keep(&c->logprobs, n_char));
        if (ids) FV_TRY(fv_api_list_add(&c->ids, ids));
        return keep_text(c, text);
    }
    FV_TRY(fv_api_logprobs_take(&c->logprobs, n_char, &logprobs));
    if (text[0] || logprobs || ids)
        send_chunk(
            c, &(fv_api_choice){.index = c->index, .text = text, .logprobs = logprobs, .ids = ids});
    json_decref(logprobs);
    return FV_OK;
}

/* Returns up to which character logprobs are given out: where a stop string may still cut text off, that
 * which has come, otherwise all. */
static uint32_t given_out(const choice *c) { return c->answer->may_cut ? c->n_char : UINT32_MAX; }

static fv_status on_tokens(choice *c, const tokens_message *t) {
    const fv_api_request *q = &c->answer->request;
    json_t *ids = NULL;
    if (q->prompt_only) return FV_OK;
    c->usage.n_answer += t->n_tokens;
    c->answer->task.facts.n_answer += t->n_tokens;
    if (c->answer->task.facts.first_s == 0) c->answer->task.facts.first_s = fv_clock_s();
    c->n_char += characters(t->text);
    if (q->logprobs) FV_TRY(fv_api_logprobs_add(&c->logprobs, t));
    if (q->ids) ids = json_array();
    for (size_t i = 0; q->ids && i < t->n_tokens; i++)
        json_array_append_new(ids, json_integer(t->tokens[i]->id));
    fv_status st = pass_on(c, t->text, given_out(c), ids);
    json_decref(ids);
    return st;
}

/* ---- the prompt's tokens ------------------------------------------------------------------ */

/* Returns ids of the prompt, where the request asks for them. A stream has them in one chunk. */
static fv_status return_prompt_ids(choice *c, const prompt_message *t) {
    answer *a = c->answer;
    if (!a->request.ids) return FV_OK;
    if (!c->prompt_ids_held) c->prompt_ids_held = json_array();
    for (size_t i = 0; i < t->n_tokens; i++)
        json_array_append_new(c->prompt_ids_held,
                              json_integer(t->tokens[i]->token ? t->tokens[i]->token->id : 0));
    if (!c->prompt_ids_held) return FV_FAIL(FV_ENOMEM, "out of memory for the prompt's ids");
    if (t->index + t->n_tokens < t->n_prompt) return FV_OK;
    if (a->request.stream)
        send_chunk(c, &(fv_api_choice){.index = c->index, .prompt_ids = c->prompt_ids_held});
    fv_status st = a->request.stream ? FV_OK : fv_api_list_add(&c->prompt_ids, c->prompt_ids_held);
    json_decref(c->prompt_ids_held);
    c->prompt_ids_held = NULL;
    return st;
}

static fv_status on_prompt(choice *c, const prompt_message *t) {
    const fv_api_request *q = &c->answer->request;
    FV_TRY(return_prompt_ids(c, t));
    if (q->prompt_logprobs) FV_TRY(fv_api_prompt_logprobs_add(t, &c->prompt_logprobs));
    if (!q->echo) return FV_OK;
    c->n_char += characters(t->text);
    c->logprobs.base = c->n_char;
    if (q->logprobs) FV_TRY(fv_api_logprobs_add_prompt(&c->logprobs, t));
    return pass_on(c, t->text, UINT32_MAX, NULL);
}

static fv_status on_finished(choice *c, const finished_message *f) {
    answer *a = c->answer;
    if (c->finished) return FV_FAIL(FV_EDATA, "the router finished the answer twice");
    c->finished = true;
    c->reason = a->request.prompt_only ? FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH
                                       : f->reason;
    if (f->report) set_prompt(c, f->report->n_prompt);
    if (f->report) c->usage.n_cached = f->report->n_prompt_cached;
    if (a->request.stream || a->request.report || f->conversation.len)
        c->fovea = fv_api_fovea(f, a->request.stream || a->request.report, &a->arena);
    /* Entries that wait have no text if a stop string cut it off. */
    if (f->reason != FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP)
        FV_TRY(pass_on(c, "", UINT32_MAX, NULL));
    if (a->request.stream)
        send_chunk(c, &(fv_api_choice){.index = c->index, .finish = c->reason, .fovea = c->fovea});
    return FV_OK;
}

/* Returns the bytes that are kept of an unstreamed answer's choice. */
static size_t kept_of(const choice *c) {
    size_t n = c->n_text + c->ids.n + c->prompt_ids.n + c->prompt_logprobs.n;
    for (int32_t i = 0; i < FV_API_LOGPROBS_LISTS; i++) n += c->logprobs.list[i].n;
    return n;
}

/* Counts what a choice has kept since it had `before`. */
static fv_status count_kept(choice *c, size_t before) {
    answer *a = c->answer;
    a->n_kept += kept_of(c) - before;
    if (a->n_kept <= KEPT_MAX) return FV_OK;
    return FV_FAIL(
        FV_ENOMEM,
        "the answer has more than %d bytes: stream it, or ask for fewer log-probabilities "
        "or answers",
        KEPT_MAX);
}

static fv_status on_message(fv_rpc_call *call, grpc_byte_buffer *message) {
    choice *c = fv_rpc_call_user(call);
    ProtobufCMessage *m;
    fv_status st = FV_OK;
    const size_t before = kept_of(c);
    if (!c->answer->http || c->answer->over) return FV_OK;
    FV_TRY(
        fv_rpc_call_unpack(call, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const Fovea__Inference__V1__GenerateEvent *e = (const void *)m;
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED)
        FV_TRY(on_accepted(c, e->accepted));
    if (c->answer->request.stream) begin_choice(c);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS)
        st = on_tokens(c, e->tokens);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_PROMPT)
        st = on_prompt(c, e->prompt);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED)
        st = on_finished(c, e->finished);
    pause_if_full(c);
    return st == FV_OK ? count_kept(c, before) : st;
}

/* ---- the end ---------------------------------------------------------------------------- */

/* Sums the usage: choices share a prompt, so it counts once. */
static fv_api_usage usage_of(const answer *a) {
    fv_api_usage u = {0};
    for (int32_t i = 0; i < a->n_choice; i++) {
        if (i % a->request.n == 0) u.n_prompt += a->choices[i].usage.n_prompt;
        if (i % a->request.n == 0) u.n_cached += a->choices[i].usage.n_cached;
        u.n_answer += a->choices[i].usage.n_answer;
    }
    return u;
}

/* param: the field to blame; "": as the sentence says. */
static void fail(answer *a, fv_status st, const char *why, const char *param, int64_t retry_ms) {
    if (a->over) return;
    if (a->streaming) {
        fv_http_set_error(a->http, why);
        send_event(a, fv_api_error(st, why, param));
        end_stream(a);
    } else {
        fv_reply_error(a->http, st, why, param, retry_ms);
    }
    cancel_calls(a);
}

static void complete(answer *a) {
    fv_api_choice list[FV_API_ANSWERS_MAX];
    fv_api_usage usage = usage_of(a);
    char *text = NULL;
    size_t n;
    if (a->streaming) {
        if (a->request.include_usage) send_event(a, fv_api_chunk(&a->names, NULL, true, &usage));
        end_stream(a);
        return;
    }
    a->over = true;
    for (int32_t i = 0; i < a->n_choice; i++) {
        const choice *c = &a->choices[i];
        list[i] = (fv_api_choice){.index = i,
                                  .text = c->text,
                                  .kept = a->request.logprobs ? &c->logprobs : NULL,
                                  .all_ids = a->request.ids ? &c->ids : NULL,
                                  .all_prompt_ids = a->request.ids ? &c->prompt_ids : NULL,
                                  .prompt_logprobs =
                                      a->request.prompt_logprobs ? &c->prompt_logprobs : NULL,
                                  .fovea = c->fovea,
                                  .finish = c->reason};
    }
    fv_status st = fv_api_whole(&a->names, list, a->n_choice, &usage, &text, &n);
    if (st == FV_OK)
        fv_http_reply(a->http, 200, "application/json", text, n);
    else
        fv_reply_last_error(a->http, st, "");
    free(text);
}

static void on_call_end(fv_rpc_call *call, const fv_rpc_end *end) {
    choice *c = fv_rpc_call_user(call);
    answer *a = c->answer;
    c->call = NULL;
    c->lane->n_call--;
    a->n_call--;
    if (a->http && !a->over) {
        if (end->status != FV_OK)
            fail(a, end->status, fv_end_text(end), "", end->retry_ms);
        else if (!c->finished)
            fail(a, FV_EDATA, "the router ended the answer before it was finished", "", -1);
        else if (--a->n_left == 0)
            complete(a);
    }
    maybe_free(a);
}

/* Ends the request's span. The HTTP status is 0 where no answer was begun. */
static void trace(const answer *a) {
    fv_api_usage usage = usage_of(a);
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
    answer *a = (answer *)t;
    trace(a);
    fv_alive_leave(&a->alive);
    a->http = NULL;
    forget_message(a);
    cancel_calls(a);
    maybe_free(a);
}

/* ---- the beginning ---------------------------------------------------------------------- */

static fv_status name_answer(answer *a) {
    uint64_t n[2];
    FV_TRY(fv_random_bytes(n, sizeof n));
    bool chat = a->request.kind == FV_API_CHAT;
    snprintf(a->id, sizeof a->id, "%s-%016llx%016llx", chat ? "chatcmpl" : "cmpl",
             (unsigned long long)n[0], (unsigned long long)n[1]);
    a->names = (fv_api_names){.kind = a->request.kind,
                              .id = a->id,
                              .model = "", /* Accepted names it */
                              .created = fv_log_time_ns() / 1000000000};
    a->seed = a->request.seeded ? a->request.message.sampling->seed : n[0] ^ n[1];
    return FV_OK;
}

static fv_status start_call(answer *a, int32_t index) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_call_end};
    choice *c = &a->choices[index];
    Fovea__Inference__V1__GenerateRequest *m = &a->request.message;
    const int32_t n = a->request.n;
    *c = (choice){.answer = a,
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
    FV_TRY(fv_held_pack(a->reading.held, m, &packed));
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
static fv_status check_copies(const answer *a) {
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

static fv_status start_calls(answer *a) {
    const int32_t n = a->request.n_prompt * a->request.n;
    FV_TRY(check_copies(a));
    FV_TRY(name_answer(a));
    a->choices = calloc((size_t)n, sizeof *a->choices);
    if (!a->choices) return FV_FAIL(FV_ENOMEM, "out of memory for %d answers", n);
    a->n_choice = a->n_left = n;
    a->may_cut = a->request.message.n_stop > 0 && !a->request.message.include_stop;
    for (int32_t i = 0; i < n; i++) FV_TRY(start_call(a, i));
    return FV_OK;
}

static fv_span begin_span(const fv_http_request *r, fv_api_kind kind) {
    const char *header = fv_http_header(r, FV_TRACE_KEY);
    fv_trace_context parent = {0};
    if (!header || !fv_trace_parse(header, strlen(header), &parent)) parent = fv_span_new_trace();
    return fv_span_begin(kind == FV_API_CHAT ? "chat" : "completion", FV_SPAN_SERVER, &parent,
                         fv_http_read_s(r));
}

/* ---- images at URLs, videos ------------------------------------------------------------- */

/* Answers the HTTP request with the last error. `a` is freed when that ends. */
static void refuse(answer *a, fv_status st, const char *param) {
    char why[FV_SENTENCE_MAX];
    fv_last_sentence(param, why);
    fail(a, st, why, param, -1);
    forget_message(a);
}

static void begin_calls(answer *a) {
    fv_status st = start_calls(a);
    if (st == FV_OK)
        forget_message(a);
    else
        refuse(a, st, "");
}

/* Puts the frames of each video into the request, last video first, because frames shift what
 * follows. */
static fv_status put_frames(answer *a) {
    while (a->request.n_video > 0) {
        const fv_api_frames frames = fv_decoding_frames(a->decodings[a->request.n_video - 1].work);
        FV_TRY(fv_api_put_frames(&a->request, &frames, &a->reading.held->arena));
    }
    return FV_OK;
}

static void on_decoded(void *user, fv_status st) {
    const decoding *d = user;
    answer *a = d->answer;
    if (st == FV_OK && --a->n_decoding > 0) return;
    if (st == FV_OK) st = put_frames(a);
    if (st == FV_OK)
        begin_calls(a);
    else
        refuse(a, st, d->video->param);
}

static void begin_decoding(answer *a, const fv_layout_config *layout) {
    a->n_decoding = a->request.n_video;
    for (int32_t i = 0; i < a->n_decoding; i++) {
        decoding *d = &a->decodings[i];
        *d = (decoding){.answer = a, .video = &a->request.videos[i]};
        fv_status st =
            fv_decode_start(a->gateway, d->video, a->reading.held, layout, on_decoded, d, &d->work);
        if (st == FV_OK) continue;
        refuse(a, st, d->video->param);
        return;
    }
}

static void on_model(void *user, const fv_rpc_end *end, const fv_layout_config *layout) {
    answer *a = user;
    if (layout) {
        begin_decoding(a, layout);
        return;
    }
    fail(a, end->status, fv_end_text(end), "", end->retry_ms);
    forget_message(a);
}

/* Asks for the model first: it decides which frames are taken and whether they are sent as a
 * video. */
static void begin_videos(answer *a) {
    if (a->request.n_video == 0) {
        begin_calls(a);
        return;
    }
    fv_status st = fv_model_ask(a->gateway, a->request.message.model, fv_http_client(a->http),
                                &a->reading.caller, a->reading.n_caller, on_model, a, &a->model);
    if (st != FV_OK) refuse(a, st, "");
}

static void on_fetched(void *user, fv_status st, const uint8_t *bytes, size_t n) {
    fetching *f = user;
    answer *a = f->answer;
    if (st == FV_OK) st = fv_held_own(a->reading.held, (uint8_t *)(uintptr_t)bytes);
    if (st == FV_OK) fv_fetch_take(f->fetch);
    if (st != FV_OK) {
        refuse(a, st, f->url->param);
        return;
    }
    *f->url->bytes = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)bytes};
    if (--a->n_fetch == 0) begin_videos(a);
}

static void begin(void *user) {
    answer *a = user;
    a->span = begin_span(a->http, a->request.kind);
    if (a->request.stream) fv_alive_join(a->gateway->alive, &a->alive, on_quiet);
    a->n_fetch = a->request.n_url;
    if (a->n_fetch == 0) begin_videos(a);
    for (int32_t i = 0; i < a->request.n_url; i++) {
        fetching *f = &a->fetches[i];
        *f = (fetching){.answer = a, .url = &a->request.urls[i]};
        fv_status st = fv_gateway_fetch(a->gateway, f->url->url, on_fetched, f, &f->fetch);
        if (st == FV_OK) continue;
        refuse(a, st, f->url->param);
        return;
    }
}

void fv_generate(fv_gateway *g, fv_http_request *r, fv_api_kind kind) {
    answer *a = calloc(1, sizeof *a);
    if (!a) {
        fv_reply_error(r, FV_ENOMEM, "out of memory", "", -1);
        return;
    }
    a->task =
        (fv_gateway_task){.ended = on_http_ended, .writable = on_writable, .reading = &a->reading};
    a->gateway = g;
    a->http = r;
    g->n_task++;
    fv_http_set_user(r, &a->task);
    fv_reading_begin(&a->reading, g, r, kind, &a->request, begin, a);
}
