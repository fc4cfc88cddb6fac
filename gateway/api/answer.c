/* JSON in the shapes of OpenAI's reference, or of vLLM where OpenAI defines none. */
#include "gateway/api/answer.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/api/message_json.h"

/* ---- errors ----------------------------------------------------------------------------- */

static const struct error {
    fv_status status;
    unsigned http;
    const char *type, *code;
} errors[] = {
    {FV_EINVAL, 400, "invalid_request_error", NULL},
    {FV_EUNSUPPORTED, 501, "server_error", "unsupported"},
    {FV_ENOMEM, 413, "invalid_request_error", "too_large"},
    {FV_EAUTH, 401, "authentication_error", "invalid_api_key"},
    {FV_EDENIED, 403, "permission_error", "forbidden"},
    {FV_ENOTFOUND, 404, "invalid_request_error", "not_found"},
    {FV_EBUSY, 429, "rate_limit_error", "overloaded"},
    {FV_EIO, 503, "server_error", "unavailable"},
    {FV_EDEADLINE, 504, "server_error", "timeout"},
};
static const struct error other = {FV_OK, 500, "server_error", NULL};

static const struct error *error_of(fv_status st) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == st) return &errors[i];
    return &other;
}

unsigned fv_api_http_status(fv_status st) { return error_of(st)->http; }

/* Finds the field that an error text begins with: the router's texts on ranges name the field
 * first. */
static const char *field_of(const char *sentence) {
    static const char *const names[] = {"temperature",
                                        "top_p",
                                        "min_p",
                                        "presence_penalty",
                                        "logit_bias",
                                        "repetition_penalty",
                                        "frequency_penalty",
                                        "stop",
                                        "keep_ms",
                                        "conversation",
                                        "max_tokens",
                                        "policy",
                                        "min_tokens",
                                        "stop_token_ids",
                                        "allowed_token_ids",
                                        "bad_words",
                                        "prompt_logprobs",
                                        "truncate_prompt_tokens",
                                        "previous_response_id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(sentence, names[i], n) == 0 && (sentence[n] == ' ' || sentence[n] == ':'))
            return names[i];
    }
    bool model = strncmp(sentence, "unknown model", 13) == 0 ||
                 strncmp(sentence, "there are several models", 24) == 0;
    return model ? "model" : "";
}

json_t *fv_api_error(fv_status st, const char *sentence, const char *param) {
    const struct error *e = error_of(st);
    const char *code = e->code;
    if (!*param) param = field_of(sentence);
    if (st == FV_ENOTFOUND && strcmp(param, "model") == 0) code = "model_not_found";
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message",
                     fv_json_text(sentence, strlen(sentence)), "type", e->type, "param",
                     *param ? fv_json_text(param, strlen(param)) : json_null(), "code", code);
}

/* ---- choices ---------------------------------------------------------------------------- */

static const char *finish_name(Fovea__Inference__V1__FinishReason f, bool calls) {
    switch (f) {
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH: return "length";
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS:
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP:
        return calls ? "tool_calls" : "stop";
    default: return NULL;
    }
}

/* A call's name comes first, and its arguments in a chunk of their own. */
static json_t *call_delta(const fv_api_choice *c) {
    const fv_api_call *call = c->calls;
    const char *arguments = call->arguments;
    if (c->call_begins)
        return json_pack("[{s:i, s:s, s:s, s:{s:s, s:s}}]", "index", c->call, "id", call->id,
                         "type", "function", "function", "name", call->name, "arguments", "");
    return json_pack("[{s:i, s:{s:o}}]", "index", c->call, "function", "arguments",
                     fv_json_text(arguments, strlen(arguments)));
}

static json_t *calls_json(const fv_api_choice *c) {
    json_t *list = json_array();
    for (int32_t i = 0; i < c->n_call; i++) {
        const fv_api_call *call = &c->calls[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", call->id, "type",
                                        "function", "function", "name", call->name, "arguments",
                                        fv_json_text(call->arguments, strlen(call->arguments))));
    }
    return list;
}

/* Reasoning is under the name that vLLM gives it and under that of most other servers. */
static void set_thought(json_t *o, const char *thought) {
    if (!thought) return;
    json_object_set_new(o, "reasoning_content", fv_json_text(thought, strlen(thought)));
    json_object_set_new(o, "reasoning", fv_json_text(thought, strlen(thought)));
}

static json_t *message(const fv_api_choice *c) {
    const char *text = c->text ? c->text : "";
    const bool none = c->n_call > 0 && !*text;
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          none ? json_null() : fv_json_text(text, strlen(text)));
    set_thought(m, c->thought);
    if (c->n_call > 0) json_object_set_new(m, "tool_calls", calls_json(c));
    return m;
}

static json_t *delta(const fv_api_choice *c) {
    json_t *d = json_object();
    if (c->begins) json_object_set_new(d, "role", json_string("assistant"));
    if (c->text) json_object_set_new(d, "content", fv_json_text(c->text, strlen(c->text)));
    set_thought(d, c->thought);
    if (c->calls) json_object_set_new(d, "tool_calls", call_delta(c));
    return d;
}

static json_t *choice_json(fv_api_kind kind, const fv_api_choice *c, bool whole) {
    const char *text = c->text ? c->text : "";
    json_t *o = json_pack("{s:i, s:s?}", "index", c->index, "finish_reason",
                          finish_name(c->finish, c->n_call > 0));
    if (!c->kept) json_object_set(o, "logprobs", c->logprobs ? c->logprobs : json_null());
    if (kind == FV_API_TEXT)
        json_object_set_new(o, "text", fv_json_text(text, strlen(text)));
    else if (whole)
        json_object_set_new(o, "message", message(c));
    else
        json_object_set_new(o, "delta", delta(c));
    if (c->fovea) json_object_set(o, "fovea", c->fovea);
    if (c->ids) json_object_set(o, "token_ids", c->ids);
    if (c->prompt_ids && kind == FV_API_TEXT) json_object_set(o, "prompt_token_ids", c->prompt_ids);
    return o;
}

static json_t *usage_json(const fv_api_usage *u) {
    json_t *o = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u->n_prompt,
                          "completion_tokens", (json_int_t)u->n_answer, "total_tokens",
                          (json_int_t)(u->n_prompt + u->n_answer), "prompt_tokens_details",
                          "cached_tokens", (json_int_t)u->n_cached);
    json_t *details = u->thinks || u->n_drafted ? json_object() : NULL;
    if (u->thinks)
        json_object_set_new(details, "reasoning_tokens", json_integer((json_int_t)u->n_thought));
    if (u->n_drafted) {
        json_object_set_new(details, "accepted_prediction_tokens",
                            json_integer((json_int_t)u->n_drafts_kept));
        json_object_set_new(details, "rejected_prediction_tokens",
                            json_integer((json_int_t)(u->n_drafted - u->n_drafts_kept)));
    }
    if (details) json_object_set_new(o, "completion_tokens_details", details);
    return o;
}

static json_t *envelope(const fv_api_names *names, const char *object) {
    return json_pack("{s:s, s:s, s:I, s:o, s:[]}", "id", names->id, "object", object, "created",
                     (json_int_t)names->created, "model",
                     fv_json_text(names->model, strlen(names->model)), "choices");
}

json_t *fv_api_chunk(const fv_api_names *names, const fv_api_choice *choice, bool usages,
                     const fv_api_usage *usage) {
    json_t *o =
        envelope(names, names->kind == FV_API_CHAT ? "chat.completion.chunk" : "text_completion");
    if (choice)
        json_array_append_new(json_object_get(o, "choices"),
                              choice_json(names->kind, choice, false));
    if (choice && choice->prompt_ids && names->kind == FV_API_CHAT)
        json_object_set(o, "prompt_token_ids", choice->prompt_ids);
    if (usages) json_object_set_new(o, "usage", usage ? usage_json(usage) : json_null());
    return o;
}

/* ---- a whole answer ---------------------------------------------------------------------- */

/* Prints a JSON object; takes it. */
static fv_status print(json_t *o, char **out) {
    *out = o ? json_dumps(o, FV_API_JSON_FLAGS) : NULL;
    json_decref(o);
    return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for an answer");
}

static char *put(char *out, const char *text, size_t n) {
    memcpy(out, text, n);
    return out + n;
}

/* Members of an answer whose values are printed already. */
enum { PRINTED_MAX = 4 };
typedef struct printed {
    const char *key[PRINTED_MAX];
    const fv_api_list *list[PRINTED_MAX];         /* an array's values, */
    const fv_api_logprobs *logprobs[PRINTED_MAX]; /* or else these */
    int32_t n;
} printed;

static void add_list(printed *p, const char *key, const fv_api_list *list) {
    if (!list) return;
    p->key[p->n] = key;
    p->list[p->n++] = list;
}

/* Adds the prompt's ids and log-probabilities. As in vLLM they are at the top of a chat, and in each choice of a
 * completion. */
static void add_prompt(printed *p, const fv_api_choice *c) {
    add_list(p, "prompt_token_ids", c->all_prompt_ids);
    add_list(p, "prompt_logprobs", c->prompt_logprobs);
}

static printed printed_of(fv_api_kind kind, const fv_api_choice *c) {
    printed p = {0};
    if (c->kept) {
        p.key[p.n] = "logprobs";
        p.logprobs[p.n++] = c->kept;
    }
    add_list(&p, "token_ids", c->all_ids);
    if (kind == FV_API_TEXT) add_prompt(&p, c);
    return p;
}

static size_t printed_size(const printed *p) {
    size_t bytes = 0;
    for (int32_t i = 0; i < p->n; i++)
        bytes += strlen(p->key[i]) + 6 +
                 (p->list[i] ? p->list[i]->n : fv_api_logprobs_size(p->logprobs[i]));
    return bytes;
}

/* Writes ,"key":value for each member. */
static char *put_printed(char *out, const printed *p) {
    for (int32_t i = 0; i < p->n; i++) {
        out = put(out, ",\"", 2);
        out = put(out, p->key[i], strlen(p->key[i]));
        out = put(out, "\":", 2);
        if (!p->list[i]) {
            out = fv_api_logprobs_write(p->logprobs[i], out);
            continue;
        }
        *out++ = '[';
        if (p->list[i]->n) out = put(out, p->list[i]->text, p->list[i]->n);
        *out++ = ']';
    }
    return out;
}

/* Writes the object `text` without its closing brace. */
static char *put_open(char *out, const char *text) { return put(out, text, strlen(text) - 1); }

static const char choices_key[] = ",\"choices\":[";

/* Joins the answer. texts [n]: the choices without what is printed already. */
static fv_status join(fv_api_kind kind, const char *head, char *const *texts,
                      const fv_api_choice *choices, int32_t n, char **out, size_t *n_out) {
    printed top = {0}, parts[FV_API_CHOICES_MAX];
    if (kind == FV_API_CHAT) add_prompt(&top, &choices[0]);
    size_t bytes = strlen(head) + printed_size(&top) + sizeof choices_key + 2;
    for (int32_t i = 0; i < n; i++) {
        parts[i] = printed_of(kind, &choices[i]);
        bytes += strlen(texts[i]) + 1 + printed_size(&parts[i]);
    }
    char *text = malloc(bytes), *at = text;
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for an answer");
    at = put_printed(put_open(at, head), &top);
    at = put(at, choices_key, sizeof choices_key - 1);
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) *at++ = ',';
        at = put_printed(put_open(at, texts[i]), &parts[i]);
        *at++ = '}';
    }
    at = put(at, "]}", 2);
    *out = text;
    *n_out = (size_t)(at - text);
    return FV_OK;
}

fv_status fv_api_whole(const fv_api_names *names, const fv_api_choice *choices, int32_t n,
                       const fv_api_usage *usage, char **out, size_t *n_out) {
    char *texts[FV_API_ANSWERS_MAX] = {NULL}, *head = NULL;
    json_t *o = envelope(names, names->kind == FV_API_CHAT ? "chat.completion" : "text_completion");
    json_object_del(o, "choices"); /* join writes them */
    json_object_set_new(o, "usage", usage_json(usage));
    fv_status st = print(o, &head);
    for (int32_t i = 0; i < n && st == FV_OK; i++)
        st = print(choice_json(names->kind, &choices[i], true), &texts[i]);
    if (st == FV_OK) st = join(names->kind, head, texts, choices, n, out, n_out);
    free(head);
    for (int32_t i = 0; i < n; i++) free(texts[i]);
    return st;
}

json_t *fv_api_fovea(const Fovea__Inference__V1__Finished *f, bool report, fv_arena *arena) {
    json_t *o = json_object();
    char *handle;
    if (f->report) {
        const char *policy = f->report->policy;
        json_object_set_new(o, "policy", fv_json_text(policy, strlen(policy)));
    }
    if (f->report && report) json_object_set_new(o, "report", fv_message_json(&f->report->base));
    if (f->conversation.len && fv_api_handle_print(&f->conversation, arena, &handle) == FV_OK) {
        json_object_set_new(o, "conversation", json_string(handle));
        json_object_set_new(o, "keep_ms", json_integer(f->keep_ms));
    }
    return o;
}
