/* The events of a choice's call. The text of an answer goes through two parsers before it is sent or
 * kept:
 *
 *   tokens' text --> reasoning (text/calls/thinking.h) --> tool calls (text/calls/calls.h) --> part
 *
 * Text that both let through within one event is one part. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/grow.h"
#include "common/random.h"
#include "gateway/generate.h"

typedef Fovea__Inference__V1__Accepted accepted_message;
typedef Fovea__Inference__V1__Finished finished_message;
typedef Fovea__Inference__V1__PromptTokens prompt_message;
typedef Fovea__Inference__V1__Tokens tokens_message;

enum { KEPT_MAX = 64 << 20 }; /* bytes of an unstreamed answer */

void fv_choice_fini(fv_choice *c) {
    fv_calls_parser_close(c->parser);
    free(c->pending.text);
    free(c->text);
    free(c->thought);
    for (int32_t i = 0; i < c->n_call; i++) {
        free(c->calls[i].name);
        free(c->calls[i].arguments);
    }
    free(c->calls);
    fv_api_logprobs_free(&c->logprobs);
    free(c->ids.text);
    free(c->prompt_ids.text);
    free(c->prompt_logprobs.text);
    json_decref(c->prompt_ids_held);
    json_decref(c->fovea);
}

static bool streams(const fv_choice *c) { return c->answer->request.stream; }

/* Whether parts are written as they come; otherwise they are kept. */
static bool sends(const fv_choice *c) { return streams(c) || c->answer->output->takes_parts; }

static fv_status send_part(fv_choice *c, const fv_api_choice *part) {
    return c->answer->output->part(c, part);
}

/* ---- parts ------------------------------------------------------------------------------- */

static fv_status append(char **to, size_t *n, size_t *cap, const char *text, size_t n_text) {
    FV_TRY(fv_grow(to, cap, *n + n_text + 1, 1));
    memcpy(*to + *n, text, n_text);
    *n += n_text;
    (*to)[*n] = '\0';
    return FV_OK;
}

/* Sends or keeps text and what comes with it. The entries of logprobs whose text this is, or all of them
 * with n_char UINT32_MAX, are given out. ids: borrowed; NULL: none. */
static fv_status pass_on(fv_choice *c, const char *text, uint32_t n_char, json_t *ids) {
    json_t *logprobs = NULL;
    fv_status st = FV_OK;
    if (!sends(c)) {
        FV_TRY(append(&c->text, &c->n_text, &c->cap_text, text, strlen(text)));
        FV_TRY(fv_api_logprobs_keep(&c->logprobs, n_char));
        return ids ? fv_api_list_add(&c->ids, ids) : FV_OK;
    }
    FV_TRY(fv_api_logprobs_take(&c->logprobs, n_char, &logprobs));
    if (text[0] || logprobs || ids)
        st = send_part(
            c, &(fv_api_choice){.index = c->index, .text = text, .logprobs = logprobs, .ids = ids});
    json_decref(logprobs);
    return st;
}

static fv_status pass_thought(fv_choice *c, const char *text, size_t n) {
    if (!sends(c)) return append(&c->thought, &c->n_thought, &c->cap_thought, text, n);
    return send_part(c, &(fv_api_choice){.index = c->index, .thought = text});
}

/* Passes on the text that is pending; no log-probabilities, as the event's last text has them. */
static fv_status flush(fv_choice *c) {
    fv_pending *p = &c->pending;
    if (p->n == 0) return FV_OK;
    fv_status st = p->thought ? pass_thought(c, p->text, p->n) : pass_on(c, p->text, 0, NULL);
    p->n = 0;
    p->text[0] = '\0';
    return st;
}

static fv_status add_pending(fv_choice *c, bool thought, const char *text, size_t n) {
    fv_pending *p = &c->pending;
    if (p->n > 0 && p->thought != thought) FV_TRY(flush(c));
    p->thought = thought;
    return append(&p->text, &p->n, &p->cap, text, n);
}

/* ---- tool calls -------------------------------------------------------------------------- */

/* Mistral's templates take ids of nine letters and digits only. */
static fv_status name_call(bool is_short, char id[FV_API_CALL_ID_MAX]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    uint8_t random[24];
    const size_t n = is_short ? 9 : sizeof random;
    FV_TRY(fv_random_bytes(random, n));
    char *at = is_short ? id : stpcpy(id, "call_");
    for (size_t i = 0; i < n; i++) *at++ = letters[random[i] % 32];
    *at = '\0';
    return FV_OK;
}

static fv_status keep_call(fv_choice *c, const char *name, const char *arguments) {
    fv_api_call call = {.name = strdup(name), .arguments = strdup(arguments)};
    fv_status st = call.name && call.arguments
                       ? name_call(fv_calls_form_has_short_ids(c->answer->form), call.id)
                       : FV_FAIL(FV_ENOMEM, "out of memory for a tool call");
    if (st == FV_OK) st = fv_grow(&c->calls, &c->cap_call, (size_t)c->n_call + 1, sizeof call);
    if (st != FV_OK) {
        free(call.name);
        free(call.arguments);
        return st;
    }
    c->calls[c->n_call++] = call;
    c->n_call_bytes += sizeof call + strlen(name) + strlen(arguments);
    return FV_OK;
}

/* Without parallel calls the first one counts, and further ones are dropped. */
static fv_status on_call(void *user, const char *name, const char *arguments) {
    fv_choice *c = user;
    const int32_t number = c->n_call;
    if (number > 0 && !c->answer->request.parallel_calls) return FV_OK;
    FV_TRY(flush(c));
    FV_TRY(keep_call(c, name, arguments));
    if (!sends(c)) return FV_OK;
    fv_api_choice part = {
        .index = c->index, .calls = &c->calls[number], .call = number, .call_begins = true};
    FV_TRY(send_part(c, &part));
    part.call_begins = false;
    return send_part(c, &part);
}

static fv_status on_text(void *user, const char *text, size_t n) {
    return add_pending(user, false, text, n);
}

static fv_status open_parser(fv_choice *c) {
    static const fv_calls_events events = {on_text, on_call};
    const fv_answer *a = c->answer;
    if (!a->form || c->parser) return FV_OK;
    return fv_calls_parser_open(a->form, a->tools, &events, c, &c->parser);
}

/* ---- an answer's tokens ------------------------------------------------------------------ */

static uint32_t characters(const char *text) {
    uint32_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static fv_status on_part(void *user, bool thought, const char *text, size_t n) {
    fv_choice *c = user;
    return thought || !c->parser ? add_pending(c, thought, text, n)
                                 : fv_calls_parser_feed(c->parser, text, n);
}

/* Text of the answer comes out in `pending`. */
static fv_status parse(fv_choice *c, const char *text) {
    const size_t n = strlen(text);
    return c->finds_thinking ? fv_thinking_feed(&c->thinking, text, n, on_part, c)
                             : on_part(c, false, text, n);
}

static fv_status end_parsers(fv_choice *c) {
    if (c->finds_thinking) FV_TRY(fv_thinking_end(&c->thinking, on_part, c));
    return c->parser ? fv_calls_parser_end(c->parser) : FV_OK;
}

/* Passes on what is pending, with log-probabilities and ids. */
static fv_status pass_pending(fv_choice *c, uint32_t n_char, json_t *ids) {
    if (c->pending.thought) FV_TRY(flush(c));
    fv_status st = pass_on(c, c->pending.n ? c->pending.text : "", n_char, ids);
    c->pending.n = 0;
    return st;
}

/* Returns up to which character logprobs are given out: where a stop string may still cut text off, that
 * which has come, otherwise all. */
static uint32_t given_out(const fv_choice *c) {
    return c->answer->may_cut ? c->n_char : UINT32_MAX;
}

static json_t *ids_of(const tokens_message *t) {
    json_t *ids = json_array();
    for (size_t i = 0; i < t->n_tokens; i++)
        json_array_append_new(ids, json_integer(t->tokens[i]->id));
    return ids;
}

/* Whether log-probabilities of an event are asked for: a response has those of its messages, so neither those of
 * reasoning nor that of a token which ends a call; n_call: calls before the event. */
static bool wants_logprobs(const fv_choice *c, bool thought, int32_t n_call) {
    const fv_api_request *q = &c->answer->request;
    const bool ends_call = c->n_call > n_call && c->pending.n == 0;
    return q->logprobs && (q->kind != FV_API_RESPONSE || !(thought || ends_call));
}

static fv_status on_tokens(fv_choice *c, const tokens_message *t) {
    fv_answer *a = c->answer;
    const fv_api_request *q = &a->request;
    const bool inside = c->finds_thinking && fv_thinking_is_inside(&c->thinking);
    const int32_t n_call = c->n_call;
    if (q->prompt_only) return FV_OK;
    c->usage.n_answer += t->n_tokens;
    a->task.facts.n_answer += t->n_tokens;
    if (a->task.facts.first_s == 0) a->task.facts.first_s = fv_clock_s();
    c->n_char += characters(t->text);
    if (*t->text) FV_TRY(parse(c, t->text));
    const bool thought = inside || (c->finds_thinking && fv_thinking_is_inside(&c->thinking));
    if (thought) c->usage.n_thought += t->n_tokens;
    if (wants_logprobs(c, thought, n_call)) FV_TRY(fv_api_logprobs_add(&c->logprobs, t));
    json_t *ids = q->ids ? ids_of(t) : NULL;
    fv_status st = pass_pending(c, given_out(c), ids);
    json_decref(ids);
    return st;
}

/* ---- the prompt's tokens ------------------------------------------------------------------ */

/* Returns ids of the prompt, where the request asks for them. A stream has them in one chunk. */
static fv_status return_prompt_ids(fv_choice *c, const prompt_message *t) {
    if (!c->answer->request.ids) return FV_OK;
    if (!c->prompt_ids_held) c->prompt_ids_held = json_array();
    for (size_t i = 0; i < t->n_tokens; i++)
        json_array_append_new(c->prompt_ids_held,
                              json_integer(t->tokens[i]->token ? t->tokens[i]->token->id : 0));
    if (!c->prompt_ids_held) return FV_FAIL(FV_ENOMEM, "out of memory for the prompt's ids");
    if (t->index + t->n_tokens < t->n_prompt) return FV_OK;
    fv_status st =
        streams(c)
            ? send_part(c, &(fv_api_choice){.index = c->index, .prompt_ids = c->prompt_ids_held})
            : fv_api_list_add(&c->prompt_ids, c->prompt_ids_held);
    json_decref(c->prompt_ids_held);
    c->prompt_ids_held = NULL;
    return st;
}

static fv_status on_prompt(fv_choice *c, const prompt_message *t) {
    const fv_api_request *q = &c->answer->request;
    FV_TRY(return_prompt_ids(c, t));
    if (q->prompt_logprobs) FV_TRY(fv_api_prompt_logprobs_add(t, &c->prompt_logprobs));
    if (!q->echo) return FV_OK;
    c->n_char += characters(t->text);
    c->logprobs.base = c->n_char;
    if (q->logprobs) FV_TRY(fv_api_logprobs_add_prompt(&c->logprobs, t));
    return pass_on(c, t->text, UINT32_MAX, NULL);
}

/* ---- the beginning and the end ------------------------------------------------------------ */

/* Sets the tokens of the choice's prompt, which a prompt's choices share. */
static void set_prompt(fv_choice *c, uint64_t n) {
    fv_answer *a = c->answer;
    if (c->index % a->request.n == 0) a->task.facts.n_prompt += n - c->usage.n_prompt;
    c->usage.n_prompt = n;
}

/* Takes the model's name from the router: the request may have named a fingerprint, or nothing. */
static fv_status on_accepted(fv_choice *c, const accepted_message *m) {
    fv_answer *a = c->answer;
    const fv_thinking_form *form = fv_thinking_form_named(m->reasoning_parser);
    char *name;
    set_prompt(c, m->n_prompt);
    c->usage.n_cached = m->n_prompt_cached;
    if (form && a->request.kind != FV_API_TEXT) {
        c->finds_thinking = c->usage.thinks = true;
        c->thinking = fv_thinking_begin(form, m->thinks);
    }
    FV_TRY(open_parser(c));
    FV_TRY(fv_arena_strndup(&a->arena, m->model, strlen(m->model), &name));
    a->names.model = name;
    return FV_OK;
}

static fv_status on_finished(fv_choice *c, const finished_message *f) {
    fv_answer *a = c->answer;
    if (c->finished) return FV_FAIL(FV_EDATA, "the router finished the answer twice");
    c->finished = true;
    c->reason = a->request.prompt_only ? FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH
                                       : f->reason;
    if (f->report) {
        set_prompt(c, f->report->n_prompt);
        c->usage.n_cached = f->report->n_prompt_cached;
        c->usage.n_drafted = f->report->n_drafted;
        c->usage.n_drafts_kept = f->report->n_drafts_kept;
    }
    if (streams(c) || a->request.report || f->conversation.len)
        c->fovea = fv_api_fovea(f, streams(c) || a->request.report, &a->arena);
    FV_TRY(end_parsers(c));
    /* Entries that wait have no text if a stop string cut it off. */
    const bool stopped = f->reason == FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP;
    FV_TRY(pass_pending(c, stopped ? 0 : UINT32_MAX, NULL));
    if (!sends(c)) return FV_OK;
    return send_part(
        c, &(fv_api_choice){
               .index = c->index, .n_call = c->n_call, .finish = c->reason, .fovea = c->fovea});
}

/* ---- an event ---------------------------------------------------------------------------- */

/* Returns the bytes that are kept of a choice. */
static size_t kept_of(const fv_choice *c) {
    size_t n = c->n_text + c->n_thought + c->n_call_bytes + c->ids.n + c->prompt_ids.n +
               c->prompt_logprobs.n;
    for (int32_t i = 0; i < FV_API_LOGPROBS_LISTS; i++) n += c->logprobs.list[i].n;
    return n;
}

/* Counts what a choice has kept since it had `before`. */
static fv_status count_kept(fv_choice *c, size_t before) {
    fv_answer *a = c->answer;
    a->n_kept += kept_of(c) - before;
    if (a->n_kept <= KEPT_MAX) return FV_OK;
    return FV_FAIL(
        FV_ENOMEM,
        "the answer has more than %d bytes: stream it, or ask for fewer log-probabilities "
        "or answers",
        KEPT_MAX);
}

/* A stream begins at its first choice. */
static void begin(fv_choice *c) {
    if (c->begun) return;
    c->begun = true;
    fv_answer_begin_stream(c->answer);
    c->answer->output->begin(c);
}

fv_status fv_choice_message(fv_choice *c, const Fovea__Inference__V1__GenerateEvent *e) {
    const size_t before = kept_of(c);
    fv_status st = FV_OK;
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED)
        FV_TRY(on_accepted(c, e->accepted));
    if (streams(c)) begin(c);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS)
        st = on_tokens(c, e->tokens);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_PROMPT)
        st = on_prompt(c, e->prompt);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED)
        st = on_finished(c, e->finished);
    return st == FV_OK ? count_kept(c, before) : st;
}
