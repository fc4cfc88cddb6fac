/* The shapes are those of OpenAI's reference; vLLM's where that says nothing. */
#include "gateway/api/answer.h"

#include <math.h>
#include <string.h>

#include "gateway/api/message_json.h"

typedef Fovea__Inference__V1__Token token_message;
typedef Fovea__Inference__V1__Alternative alternative_message;

/* ---- errors ----------------------------------------------------------------------------- */

static const struct error {
    fv_status status;
    unsigned http;
    const char *type, *code;
} errors[] = {
    {FV_EINVAL, 400, "invalid_request_error", NULL},
    {FV_EUNSUPPORTED, 400, "invalid_request_error", "unsupported"},
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

/* Fields whose ranges the router checks: its sentences begin with their names. */
static const char *field_of(const char *sentence) {
    static const char *const names[] = {"temperature",       "top_p",      "min_p",
                                        "presence_penalty",  "logit_bias", "repetition_penalty",
                                        "frequency_penalty", "stop",       "keep_ms",
                                        "conversation",      "max_tokens", "policy"};
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

/* ---- log-probabilities ------------------------------------------------------------------ */

static double finite_or_least(float logprob) {
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

static json_t *bytes_of(const ProtobufCBinaryData *text) {
    json_t *list = json_array();
    for (size_t i = 0; i < text->len; i++) json_array_append_new(list, json_integer(text->data[i]));
    return list;
}

static json_t *text_of(const ProtobufCBinaryData *text) {
    return fv_json_text((const char *)text->data, text->len);
}

static json_t *entry(const ProtobufCBinaryData *text, float logprob) {
    return json_pack("{s:o, s:f, s:o}", "token", text_of(text), "logprob", finite_or_least(logprob),
                     "bytes", bytes_of(text));
}

static fv_status out_of_memory(void) {
    return FV_FAIL(FV_ENOMEM, "out of memory for log-probabilities");
}

static fv_status add_chat(const token_message *t, json_t *to) {
    json_t *one = entry(&t->text, t->logprob), *top = json_array();
    for (size_t i = 0; i < t->n_alternatives; i++)
        json_array_append_new(top, entry(&t->alternatives[i]->text, t->alternatives[i]->logprob));
    bool bad = json_object_set_new(one, "top_logprobs", top) != 0;
    if (json_array_append_new(json_object_get(to, "content"), one) != 0 || bad)
        return out_of_memory();
    return FV_OK;
}

static fv_status add_text(const token_message *t, json_t *to, size_t *offset) {
    json_t *top = json_object();
    for (size_t i = 0; i < t->n_alternatives; i++) {
        const alternative_message *a = t->alternatives[i];
        json_t *name = text_of(&a->text);
        if (name)
            json_object_set_new(top, json_string_value(name),
                                json_real(finite_or_least(a->logprob)));
        json_decref(name);
    }
    bool bad = json_array_append_new(json_object_get(to, "tokens"), text_of(&t->text)) != 0;
    bad |= json_array_append_new(json_object_get(to, "token_logprobs"),
                                 json_real(finite_or_least(t->logprob))) != 0;
    bad |= json_array_append_new(json_object_get(to, "top_logprobs"), top) != 0;
    bad |= json_array_append_new(json_object_get(to, "text_offset"),
                                 json_integer((json_int_t)*offset)) != 0;
    *offset += t->text.len;
    return bad ? out_of_memory() : FV_OK;
}

fv_status fv_api_add_logprobs(fv_api_kind kind, const Fovea__Inference__V1__Tokens *t, json_t **to,
                              size_t *offset) {
    if (!*to)
        *to = kind == FV_API_CHAT ? json_pack("{s:[]}", "content")
                                  : json_pack("{s:[], s:[], s:[], s:[]}", "tokens",
                                              "token_logprobs", "top_logprobs", "text_offset");
    if (!*to) return out_of_memory();
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (kind == FV_API_CHAT)
            FV_TRY(add_chat(t->tokens[i], *to));
        else
            FV_TRY(add_text(t->tokens[i], *to, offset));
    }
    return FV_OK;
}

/* ---- choices ---------------------------------------------------------------------------- */

static const char *finish_name(Fovea__Inference__V1__FinishReason f) {
    switch (f) {
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH: return "length";
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS:
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP: return "stop";
    default: return NULL;
    }
}

static json_t *delta(const fv_api_choice *c) {
    json_t *d = json_object();
    if (c->begins) json_object_set_new(d, "role", json_string("assistant"));
    if (c->text) json_object_set_new(d, "content", fv_json_text(c->text, strlen(c->text)));
    return d;
}

static json_t *choice_json(fv_api_kind kind, const fv_api_choice *c, bool whole) {
    const char *text = c->text ? c->text : "";
    json_t *o = json_pack("{s:i, s:O?, s:s?}", "index", c->index, "logprobs", c->logprobs,
                          "finish_reason", finish_name(c->finish));
    if (kind == FV_API_TEXT)
        json_object_set_new(o, "text", fv_json_text(text, strlen(text)));
    else if (whole)
        json_object_set_new(o, "message",
                            json_pack("{s:s, s:o}", "role", "assistant", "content",
                                      fv_json_text(text, strlen(text))));
    else
        json_object_set_new(o, "delta", delta(c));
    if (c->fovea) json_object_set(o, "fovea", c->fovea);
    return o;
}

static json_t *usage_json(const fv_api_usage *u) {
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)u->n_prompt,
                     "completion_tokens", (json_int_t)u->n_answer, "total_tokens",
                     (json_int_t)(u->n_prompt + u->n_answer));
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
    if (usages) json_object_set_new(o, "usage", usage ? usage_json(usage) : json_null());
    return o;
}

json_t *fv_api_whole(const fv_api_names *names, const fv_api_choice *choices, int32_t n,
                     const fv_api_usage *usage) {
    json_t *o = envelope(names, names->kind == FV_API_CHAT ? "chat.completion" : "text_completion");
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(json_object_get(o, "choices"),
                              choice_json(names->kind, &choices[i], true));
    json_object_set_new(o, "usage", usage_json(usage));
    return o;
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
