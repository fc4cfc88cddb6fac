/* A table of fields, and how each is read. A field that is null is as if it were not there. */
#include "gateway/api/request.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/base64.h"
#include "gateway/api/reader.h"
#include "serving/policy_message.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Sampling sampling_message;

enum { STOPS_MAX = 16, LOGPROBS_MAX = 20, BIASES_MAX = 300, MODEL_MAX = 256, HANDLE_MAX = 256 };

/* ---- values ----------------------------------------------------------------------------- */

size_t fv_api_enter(fv_api_reader *r, const char *key) {
    size_t at = strlen(r->param);
    snprintf(r->param + at, FV_API_PARAM_MAX - at, "%s%s", at ? "." : "", key);
    return at;
}

size_t fv_api_enter_index(fv_api_reader *r, size_t i) {
    size_t at = strlen(r->param);
    snprintf(r->param + at, FV_API_PARAM_MAX - at, "[%zu]", i);
    return at;
}

void fv_api_leave(fv_api_reader *r, size_t at) { r->param[at] = '\0'; }

fv_status fv_api_text(fv_api_reader *r, const json_t *v, char **out) {
    if (!json_is_string(v)) return FV_FAIL(FV_EINVAL, "it must be a string");
    return fv_arena_strndup(r->arena, json_string_value(v), json_string_length(v), out);
}

fv_status fv_api_number(const json_t *v, double *out) {
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!isfinite((float)x)) return FV_FAIL(FV_EINVAL, "it must be a number");
    *out = x;
    return FV_OK;
}

fv_status fv_api_integer(const json_t *v, int64_t min, int64_t max, int64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return FV_FAIL(FV_EINVAL, "it must be an integer, %" PRId64 " to %" PRId64, min, max);
    *out = json_integer_value(v);
    return FV_OK;
}

fv_status fv_api_bool(const json_t *v, bool *out) {
    if (!json_is_boolean(v)) return FV_FAIL(FV_EINVAL, "it must be true or false");
    *out = json_is_true(v);
    return FV_OK;
}

/* ---- fields ----------------------------------------------------------------------------- */

static fv_status set_policy(fv_api_reader *r, const char *text, const char *from) {
    if (r->policy)
        return FV_FAIL(FV_EINVAL, "the policy is given twice, in %s and in %s", r->policy_from,
                       from);
    r->policy = text;
    r->policy_from = from;
    return FV_OK;
}

/* "name", or "name@policy". */
static fv_status read_model(fv_api_reader *r, const json_t *v) {
    char *name;
    FV_TRY(fv_api_text(r, v, &name));
    if (strlen(name) > MODEL_MAX + FV_POLICY_TEXT_MAX)
        return FV_FAIL(FV_EINVAL, "the model name is too long");
    char *policy = strchr(name, '@');
    r->out->message.model = name;
    if (!policy) return FV_OK;
    *policy = '\0';
    return set_policy(r, policy + 1, "the model's name");
}

static fv_status read_policy(fv_api_reader *r, const json_t *v) {
    char *text;
    FV_TRY(fv_api_text(r, v, &text));
    return set_policy(r, text, "the body");
}

static fv_status set_text(fv_api_reader *r, const json_t *v) {
    Fovea__Inference__V1__Prompt *p = r->out->message.prompt;
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    return fv_api_text(r, v, &p->text);
}

static fv_status set_ids(fv_api_reader *r, const json_t *v) {
    Fovea__Inference__V1__Prompt *p = r->out->message.prompt;
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    FV_TRY(FV_ARENA_NEW(r->arena, 1, p->ids));
    fovea__inference__v1__token_ids__init(p->ids);
    FV_TRY(FV_ARENA_NEW(r->arena, json_array_size(v), p->ids->id));
    for (size_t i = 0; i < json_array_size(v); i++) {
        int64_t id;
        size_t at = fv_api_enter_index(r, i);
        FV_TRY(fv_api_integer(json_array_get(v, i), 0, INT32_MAX, &id));
        fv_api_leave(r, at);
        p->ids->id[p->ids->n_id++] = (uint32_t)id;
    }
    return FV_OK;
}

/* A text, or ids, or a list of one of these. */
static fv_status read_prompt(fv_api_reader *r, const json_t *v) {
    const json_t *first = json_array_get(v, 0);
    FV_TRY(FV_ARENA_NEW(r->arena, 1, r->out->message.prompt));
    fovea__inference__v1__prompt__init(r->out->message.prompt);
    if (json_is_integer(first)) return set_ids(r, v);
    if (json_is_array(v) && json_array_size(v) != 1)
        return FV_FAIL(FV_EINVAL, "only one prompt per request is supported");
    if (json_is_array(v)) v = first;
    return json_is_array(v) ? set_ids(r, v) : set_text(r, v);
}

static fv_status read_seed(fv_api_reader *r, const json_t *v) {
    int64_t seed;
    FV_TRY(fv_api_integer(v, INT64_MIN, INT64_MAX, &seed));
    r->out->message.sampling->seed = (uint64_t)seed;
    r->out->seeded = true;
    return FV_OK;
}

static fv_status read_stop(fv_api_reader *r, const json_t *v) {
    request_message *m = &r->out->message;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > STOPS_MAX) return FV_FAIL(FV_EINVAL, "%zu stop strings; the limit is %d", n, STOPS_MAX);
    FV_TRY(FV_ARENA_NEW(r->arena, n, m->stop));
    for (size_t i = 0; i < n; i++)
        FV_TRY(fv_api_text(r, json_is_array(v) ? json_array_get(v, i) : v, &m->stop[i]));
    m->n_stop = n;
    return FV_OK;
}

/* A chat has a flag and a number, a text completion has a number alone. */
static fv_status read_logprobs(fv_api_reader *r, const json_t *v) {
    int64_t n;
    if (r->out->kind == FV_API_CHAT) return fv_api_bool(v, &r->out->logprobs);
    FV_TRY(fv_api_integer(v, 0, LOGPROBS_MAX, &n));
    r->out->logprobs = true;
    r->out->message.n_logprobs = (uint32_t)n;
    return FV_OK;
}

static fv_status read_top_k(fv_api_reader *r, const json_t *v) {
    int64_t k;
    FV_TRY(fv_api_integer(v, -1, INT32_MAX, &k)); /* vLLM writes -1 for "off" */
    r->out->message.sampling->top_k = k < 0 ? 0 : (uint32_t)k;
    return FV_OK;
}

static fv_status read_bias(fv_api_reader *r, const json_t *v) {
    sampling_message *s = r->out->message.sampling;
    Fovea__Inference__V1__LogitBias *b;
    const char *key;
    json_t *value;
    size_t n = json_object_size(v);
    if (!json_is_object(v))
        return FV_FAIL(FV_EINVAL, "it must be an object that maps token ids to biases");
    if (n > BIASES_MAX) return FV_FAIL(FV_EINVAL, "%zu ids; the limit is %d", n, BIASES_MAX);
    FV_TRY(FV_ARENA_NEW(r->arena, n, b));
    FV_TRY(FV_ARENA_NEW(r->arena, n, s->logit_bias));
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        double bias;
        size_t at = fv_api_enter(r, key), digits = strspn(key, "0123456789");
        if (digits == 0 || digits > 9 || key[digits])
            return FV_FAIL(FV_EINVAL, "'%.16s' is not a token id", key);
        FV_TRY(fv_api_number(value, &bias));
        fv_api_leave(r, at);
        fovea__inference__v1__logit_bias__init(b);
        b->id = (uint32_t)strtoul(key, NULL, 10);
        b->bias = (float)bias;
        s->logit_bias[s->n_logit_bias++] = b++;
    }
    return FV_OK;
}

static fv_status read_stream_options(fv_api_reader *r, const json_t *v) {
    const char *key;
    json_t *value;
    if (!json_is_object(v)) return FV_FAIL(FV_EINVAL, "it must be an object");
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        size_t at = fv_api_enter(r, key);
        if (strcmp(key, "include_usage") != 0)
            return FV_FAIL(FV_EINVAL, "this field is not supported");
        FV_TRY(fv_api_bool(value, &r->out->include_usage));
        fv_api_leave(r, at);
    }
    return FV_OK;
}

fv_status fv_api_handle_print(const ProtobufCBinaryData *handle, fv_arena *arena, char **out) {
    FV_TRY(FV_ARENA_NEW(arena, FV_BASE64_SIZE(handle->len) + 1, *out));
    (*out)[fv_base64_write(FV_BASE64_URL, handle->data, handle->len, *out)] = '\0';
    return FV_OK;
}

static fv_status read_conversation(fv_api_reader *r, const json_t *v) {
    ProtobufCBinaryData *handle = &r->out->message.conversation;
    size_t n = json_string_length(v);
    FV_TRY(FV_ARENA_NEW(r->arena, HANDLE_MAX, handle->data));
    if (n == 0 || n > HANDLE_MAX ||
        fv_base64_read(FV_BASE64_URL, json_string_value(v), n, handle->data, &handle->len) != FV_OK)
        return FV_FAIL(FV_EINVAL, "not a conversation handle");
    return FV_OK;
}

static fv_status read_special(fv_api_reader *r, const json_t *v) {
    bool special;
    FV_TRY(fv_api_bool(v, &special));
    r->out->bare = !special;
    return FV_OK;
}

/* Only the value that means nothing: {"type": "text"}, 1, false, "none", an empty list. */
static fv_status read_plain_format(fv_api_reader *r, const json_t *v) {
    const char *type = json_string_value(json_object_get(v, "type"));
    (void)r;
    return type && strcmp(type, "text") == 0
               ? FV_OK
               : FV_FAIL(FV_EINVAL,
                         "answers are plain text; only {\"type\": \"text\"} is supported");
}

static fv_status read_nothing(fv_api_reader *r, const json_t *v) {
    const char *text = json_string_value(v);
    (void)r;
    bool none = json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0) ||
                (text && (!text[0] || strcmp(text, "none") == 0));
    return none ? FV_OK : FV_FAIL(FV_EINVAL, "this field is not supported");
}

static fv_status read_anything(fv_api_reader *r, const json_t *v) {
    (void)r;
    (void)v;
    return FV_OK;
}

enum { ANY = FV_API_CHAT | FV_API_TEXT, ALL = ANY | FV_API_TOKENS };

typedef struct field {
    const char *name;
    unsigned kinds; /* fv_api_kind */
    enum { READ, NUMBER, INTEGER, FLAG } type;
    fv_status (*read)(fv_api_reader *r, const json_t *v);
    size_t at;        /* offset in fv_api_request; of a NUMBER, which is a float, in Sampling */
    int64_t min, max; /* of an INTEGER, which has 32 bits */
} field;

#define READ(name, kinds, read) name, kinds, READ, read, 0, 0, 0
#define NUMBER(name) #name, ANY, NUMBER, NULL, offsetof(sampling_message, name), 0, 0
#define INTEGER(name, kinds, member, min, max)                                                     \
    name, kinds, INTEGER, NULL, offsetof(fv_api_request, member), min, max
#define FLAG(name, kinds, member) name, kinds, FLAG, NULL, offsetof(fv_api_request, member), 0, 0

static const field fields[] = {
    {READ("model", ALL, read_model)},
    {READ("messages", FV_API_CHAT | FV_API_TOKENS, fv_api_messages)},
    {READ("prompt", FV_API_TEXT | FV_API_TOKENS, read_prompt)},
    {READ("policy", ANY, read_policy)},
    {NUMBER(temperature)},
    {NUMBER(top_p)},
    {NUMBER(min_p)},
    {NUMBER(presence_penalty)},
    {NUMBER(frequency_penalty)},
    {NUMBER(repetition_penalty)},
    {READ("top_k", ANY, read_top_k)},
    {READ("logit_bias", ANY, read_bias)},
    {READ("seed", ANY, read_seed)},
    {INTEGER("max_tokens", ANY, message.max_tokens, 1, INT32_MAX)},
    {INTEGER("max_completion_tokens", FV_API_CHAT, message.max_tokens, 1, INT32_MAX)},
    {READ("stop", ANY, read_stop)},
    {INTEGER("n", ANY, n, 1, FV_API_CHOICES_MAX)},
    {READ("logprobs", ANY, read_logprobs)},
    {INTEGER("top_logprobs", FV_API_CHAT, message.n_logprobs, 0, LOGPROBS_MAX)},
    {FLAG("stream", ANY, stream)},
    {READ("stream_options", ANY, read_stream_options)},
    {FLAG("ignore_eos", ANY, message.ignore_eos)},
    {FLAG("fovea_report", ANY, report)},
    {FLAG("kept_tokens", ANY, message.kept_tokens)},
    {INTEGER("keep_ms", ANY, message.keep_ms, 0, UINT32_MAX)},
    {READ("conversation", ANY, read_conversation)},
    {FLAG("return_token_strs", FV_API_TOKENS, texts)},
    {READ("add_special_tokens", FV_API_TOKENS, read_special)},
    {READ("response_format", ANY, read_plain_format)},
    {READ("tools", ANY, read_nothing)},
    {READ("tool_choice", ANY, read_nothing)},
    {READ("echo", ANY, read_nothing)},
    {READ("suffix", ANY, read_nothing)},
    {READ("store", ANY, read_nothing)},
    {READ("user", ALL, read_anything)},
};
enum { N_FIELD = sizeof fields / sizeof *fields };

static fv_status read_field(fv_api_reader *r, const field *f, const json_t *v) {
    void *at = (char *)(f->type == NUMBER ? (void *)r->out->message.sampling : r->out) + f->at;
    double number;
    int64_t integer;
    bool flag;
    switch (f->type) {
    case READ: return f->read(r, v);
    case NUMBER:
        FV_TRY(fv_api_number(v, &number));
        *(float *)at = (float)number;
        return FV_OK;
    case INTEGER:
        FV_TRY(fv_api_integer(v, f->min, f->max, &integer));
        *(uint32_t *)at = (uint32_t)integer;
        return FV_OK;
    case FLAG:
        FV_TRY(fv_api_bool(v, &flag));
        *(protobuf_c_boolean *)at = flag;
        return FV_OK;
    }
    return FV_OK;
}

static fv_status read_fields(fv_api_reader *r, const json_t *root) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        const field *f = fields;
        size_t at = fv_api_enter(r, key);
        if (json_is_null(v)) {
            fv_api_leave(r, at);
            continue;
        }
        while (f < fields + N_FIELD && !(f->kinds & r->out->kind && strcmp(f->name, key) == 0)) f++;
        if (f == fields + N_FIELD) return FV_FAIL(FV_EINVAL, "this field is not supported");
        FV_TRY(read_field(r, f, v));
        fv_api_leave(r, at);
    }
    return FV_OK;
}

static fv_status missing(fv_api_reader *r, const char *name) {
    fv_api_enter(r, name);
    return FV_FAIL(FV_EINVAL, "this field is required");
}

/* What depends on several fields. */
static fv_status check_whole(fv_api_reader *r, const json_t *root) {
    fv_api_request *q = r->out;
    bool two = json_object_get(root, "messages") && json_object_get(root, "prompt");
    if (!q->message.prompt) return missing(r, q->kind == FV_API_TEXT ? "prompt" : "messages");
    if (two) return FV_FAIL(FV_EINVAL, "messages and prompt cannot be combined");
    if (q->kind == FV_API_CHAT && q->message.n_logprobs && !q->logprobs) {
        fv_api_enter(r, "top_logprobs");
        return FV_FAIL(FV_EINVAL, "it needs \"logprobs\": true");
    }
    if (json_object_get(root, "stream_options") && !q->stream &&
        !json_is_null(json_object_get(root, "stream_options"))) {
        fv_api_enter(r, "stream_options");
        return FV_FAIL(FV_EINVAL, "it needs \"stream\": true");
    }
    q->message.token_texts = q->logprobs;
    return FV_OK;
}

static fv_status finish_policy(fv_api_reader *r) {
    fv_policy policy;
    if (!r->policy || !*r->policy) return FV_OK;
    fv_status st = fv_policy_parse(r->policy, &policy);
    if (st == FV_OK) st = fv_policy_to_message(&policy, r->arena, &r->out->message.policy);
    if (st != FV_OK) fv_api_enter(r, "policy");
    return st;
}

/* json_decref it. */
static fv_status parse(const char *body, size_t n, json_t **out) {
    json_error_t e;
    json_t *root = json_loadb(body, n, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        return FV_FAIL(FV_EINVAL, "the body is not JSON: line %d, column %d: %s", e.line, e.column,
                       e.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return FV_FAIL(FV_EINVAL, "the body must be a JSON object");
    }
    *out = root;
    return FV_OK;
}

fv_status fv_api_read(fv_api_kind kind, const char *body, size_t n, const char *policy,
                      fv_arena *arena, fv_api_request *out, char param[FV_API_PARAM_MAX]) {
    json_t *root;
    fv_api_cuts cuts;
    fv_api_reader r = {.arena = arena, .out = out, .param = param, .cuts = &cuts};
    *param = '\0';
    *out = (fv_api_request){.kind = kind, .n = 1};
    fovea__inference__v1__generate_request__init(&out->message);
    FV_TRY(fv_api_cut(&cuts, &body, &n, arena));
    FV_TRY(parse(body, n, &root));
    fv_status st = FV_ARENA_NEW(arena, 1, out->message.sampling);
    if (st == FV_OK) {
        fovea__inference__v1__sampling__init(out->message.sampling);
        out->message.sampling->temperature = 1; /* OpenAI's default */
        if (policy) st = set_policy(&r, policy, "the header x-fovea-policy");
    }
    if (st == FV_OK) st = read_fields(&r, root);
    if (st == FV_OK) st = check_whole(&r, root);
    if (st == FV_OK) st = finish_policy(&r);
    json_decref(root);
    return st;
}

fv_status fv_api_read_ids(const char *body, size_t n, fv_arena *arena,
                          Fovea__Inference__V1__DetokenizeRequest *out,
                          char param[FV_API_PARAM_MAX]) {
    json_t *root;
    fv_api_request q;
    fv_api_reader r = {.arena = arena, .out = &q, .param = param};
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    *param = '\0';
    fovea__inference__v1__detokenize_request__init(out);
    fovea__inference__v1__generate_request__init(&q.message);
    q.message.prompt = &prompt;
    FV_TRY(parse(body, n, &root));
    const json_t *model = json_object_get(root, "model"), *ids = json_object_get(root, "tokens");
    fv_status st = model && !json_is_null(model) ? fv_api_text(&r, model, &out->model) : FV_OK;
    if (st != FV_OK) {
        fv_api_enter(&r, "model");
    } else {
        size_t at = fv_api_enter(&r, "tokens");
        st = json_is_array(ids) ? set_ids(&r, ids) : FV_FAIL(FV_EINVAL, "it must be a list of ids");
        if (st == FV_OK) fv_api_leave(&r, at);
    }
    if (st == FV_OK) {
        out->n_id = prompt.ids->n_id;
        out->id = prompt.ids->id;
    }
    json_decref(root);
    return st;
}
