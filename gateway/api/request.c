/* Reads the fields of a body by a table. A field that is null counts as not given. */
#include "gateway/api/request.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/reader.h"
#include "serving/policy_message.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Sampling sampling_message;
typedef Fovea__Inference__V1__Prompt prompt_message;

enum {
    STOPS_MAX = 16,
    LOGPROBS_MAX = 20,
    BIASES_MAX = 300,
    MODEL_MAX = 256,
    HANDLE_MAX = 256,
    SALT_MAX = 256
};

/* ---- fields ----------------------------------------------------------------------------- */

static fv_status set_policy(fv_api_reader *r, const char *text, const char *from) {
    if (r->policy)
        return FV_FAIL(FV_EINVAL, "the policy is given twice, in %s and in %s", r->policy_from,
                       from);
    r->policy = text;
    r->policy_from = from;
    return FV_OK;
}

/* Reads "name" or "name@policy". */
static fv_status read_model(fv_api_reader *r, const fv_json_event *e) {
    char *name;
    FV_TRY(fv_api_text(r, e, &name));
    if (strlen(name) > MODEL_MAX + FV_POLICY_TEXT_MAX)
        return FV_FAIL(FV_EINVAL, "a name of %zu bytes: at most %d, the policy included",
                       strlen(name), MODEL_MAX + FV_POLICY_TEXT_MAX);
    char *policy = r->out->kind == FV_API_IDS ? NULL : strchr(name, '@');
    r->out->message.model = name;
    if (!policy) return FV_OK;
    *policy = '\0';
    return set_policy(r, policy + 1, "the model's name");
}

static fv_status read_policy(fv_api_reader *r, const fv_json_event *e) {
    char *text;
    FV_TRY(fv_api_text(r, e, &text));
    return set_policy(r, text, "the body");
}

/* ---- prompts ---------------------------------------------------------------------------- */

static fv_status new_prompt(fv_api_reader *r, prompt_message **out) {
    fv_api_request *q = r->out;
    if (q->n_prompt == FV_API_ANSWERS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d prompts", FV_API_ANSWERS_MAX);
    FV_TRY(fv_api_room(r->arena, &q->prompts, (size_t)q->n_prompt, sizeof *q->prompts));
    FV_TRY(FV_ARENA_NEW(r->arena, 1, *out));
    fovea__inference__v1__prompt__init(*out);
    q->prompts[q->n_prompt++] = *out;
    q->message.prompt = q->prompts[0];
    return FV_OK;
}

static fv_status add_id(fv_api_reader *r, const char *key, const fv_json_event *e) {
    Fovea__Inference__V1__TokenIds *ids = r->out->prompts[r->out->n_prompt - 1]->ids;
    int64_t id;
    (void)key;
    FV_TRY(fv_api_integer(e, 0, INT32_MAX, &id));
    if (r->n_id++ == FV_API_IDS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d token ids", FV_API_IDS_MAX);
    FV_TRY(fv_api_room(r->arena, &ids->id, ids->n_id, sizeof *ids->id));
    ids->id[ids->n_id++] = (uint32_t)id;
    return FV_OK;
}

static const fv_api_shape ids = {.member = add_id};

static fv_status new_ids(fv_api_reader *r) {
    prompt_message *p;
    FV_TRY(new_prompt(r, &p));
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    FV_TRY(FV_ARENA_NEW(r->arena, 1, p->ids));
    fovea__inference__v1__token_ids__init(p->ids);
    return FV_OK;
}

static fv_status add_text(fv_api_reader *r, const fv_json_event *e) {
    prompt_message *p;
    FV_TRY(new_prompt(r, &p));
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    return fv_api_text(r, e, &p->text);
}

/* Reads an element of the list. If the first one is a number, the list is the ids of one prompt;
 * otherwise each element is a prompt: a text, or a list of ids. */
static fv_status add_prompt(fv_api_reader *r, const char *key, const fv_json_event *e) {
    const bool first = fv_api_top(r)->n == 0;
    if (first) r->truth = e->type == FV_JSON_INTEGER || e->type == FV_JSON_REAL;
    if (first && r->truth) FV_TRY(new_ids(r));
    if (r->truth) return add_id(r, key, e);
    if (e->type != FV_JSON_ARRAY) return add_text(r, e);
    FV_TRY(new_ids(r));
    return fv_api_enter(r, &ids);
}

static fv_status end_prompts(fv_api_reader *r) {
    return fv_api_top(r)->n ? FV_OK : FV_FAIL(FV_EINVAL, "the list of prompts is empty");
}

static const fv_api_shape prompts = {.member = add_prompt, .end = end_prompts};

/* Reads a text, a list of ids, or a list of texts and lists of ids. */
static fv_status read_prompt(fv_api_reader *r, const fv_json_event *e) {
    return e->type == FV_JSON_ARRAY ? fv_api_enter(r, &prompts) : add_text(r, e);
}

static fv_status read_tokens(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_ARRAY) return FV_FAIL(FV_EINVAL, "it must be a list of ids");
    FV_TRY(new_ids(r));
    return fv_api_enter(r, &ids);
}

/* ---- sampling and the rest --------------------------------------------------------------- */

static fv_status read_seed(fv_api_reader *r, const fv_json_event *e) {
    int64_t seed;
    FV_TRY(fv_api_integer(e, INT64_MIN, INT64_MAX, &seed));
    r->out->message.sampling->seed = (uint64_t)seed;
    r->out->seeded = true;
    return FV_OK;
}

static fv_status add_stop(fv_api_reader *r, const char *key, const fv_json_event *e) {
    request_message *m = &r->out->message;
    (void)key;
    if (m->n_stop == STOPS_MAX) return FV_FAIL(FV_EINVAL, "more than %d stop strings", STOPS_MAX);
    return fv_api_text(r, e, &m->stop[m->n_stop++]);
}

static const fv_api_shape stops = {.member = add_stop, .unnumbered = true};

static fv_status read_stop(fv_api_reader *r, const fv_json_event *e) {
    FV_TRY(FV_ARENA_NEW(r->arena, STOPS_MAX, r->out->message.stop));
    return e->type == FV_JSON_ARRAY ? fv_api_enter(r, &stops) : add_stop(r, "", e);
}

/* "logprobs" is a flag in a chat, which has top_logprobs too, and a number in a text completion. */
static fv_status read_logprobs(fv_api_reader *r, const fv_json_event *e) {
    int64_t n;
    if (r->out->kind == FV_API_CHAT) return fv_api_bool(e, &r->out->logprobs);
    FV_TRY(fv_api_integer(e, 0, LOGPROBS_MAX, &n));
    r->out->logprobs = true;
    r->out->message.n_logprobs = (uint32_t)n;
    return FV_OK;
}

static fv_status read_top_k(fv_api_reader *r, const fv_json_event *e) {
    int64_t k;
    FV_TRY(fv_api_integer(e, -1, INT32_MAX, &k)); /* vLLM writes -1 for "off" */
    r->out->message.sampling->top_k = k < 0 ? 0 : (uint32_t)k;
    return FV_OK;
}

static fv_status add_bias(fv_api_reader *r, const char *key, const fv_json_event *e) {
    sampling_message *s = r->out->message.sampling;
    Fovea__Inference__V1__LogitBias *b;
    const size_t digits = strspn(key, "0123456789");
    double bias;
    if (digits == 0 || digits > 9 || key[digits])
        return FV_FAIL(FV_EINVAL, "'%.16s' is not a token id", key);
    FV_TRY(fv_api_number(e, &bias));
    if (s->n_logit_bias == BIASES_MAX) {
        fv_api_unnumber(r);
        return FV_FAIL(FV_EINVAL, "more than %d ids", BIASES_MAX);
    }
    FV_TRY(FV_ARENA_NEW(r->arena, 1, b));
    fovea__inference__v1__logit_bias__init(b);
    b->id = (uint32_t)strtoul(key, NULL, 10);
    b->bias = (float)bias;
    s->logit_bias[s->n_logit_bias++] = b;
    return FV_OK;
}

static const fv_api_shape biases = {.member = add_bias};

static fv_status read_bias(fv_api_reader *r, const fv_json_event *e) {
    sampling_message *s = r->out->message.sampling;
    if (e->type != FV_JSON_OBJECT)
        return FV_FAIL(FV_EINVAL, "it must be an object that maps token ids to biases");
    FV_TRY(FV_ARENA_NEW(r->arena, BIASES_MAX, s->logit_bias));
    return fv_api_enter(r, &biases);
}

static fv_status read_stream_option(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (e->type == FV_JSON_NULL) return FV_OK;
    if (strcmp(key, "include_usage") == 0) return fv_api_bool(e, &r->out->include_usage);
    if (strcmp(key, "continuous_usage_stats") == 0) return fv_api_bool(e, &r->out->usage_always);
    return fv_api_ignore(r, e);
}

static const fv_api_shape stream_options = {.member = read_stream_option};

static fv_status read_stream_options(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_enter(r, &stream_options);
}

fv_status fv_api_handle_print(const ProtobufCBinaryData *handle, fv_arena *arena, char **out) {
    FV_TRY(FV_ARENA_NEW(arena, FV_BASE64_SIZE(handle->len) + 1, *out));
    (*out)[fv_base64_write(FV_BASE64_URL, handle->data, handle->len, *out)] = '\0';
    return FV_OK;
}

static fv_status read_conversation(fv_api_reader *r, const fv_json_event *e) {
    ProtobufCBinaryData *handle = &r->out->message.conversation;
    FV_TRY(FV_ARENA_NEW(r->arena, FV_BASE64_BYTES(HANDLE_MAX), handle->data));
    if (e->type != FV_JSON_STRING || e->n == 0 || e->n > HANDLE_MAX ||
        fv_base64_read(FV_BASE64_URL, e->text, e->n, handle->data, &handle->len) != FV_OK)
        return FV_FAIL(FV_EINVAL, "not a conversation handle");
    return FV_OK;
}

static fv_status read_salt(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_STRING || e->n == 0 || e->n > SALT_MAX)
        return FV_FAIL(FV_EINVAL, "it must be a string of 1 to %d bytes", SALT_MAX);
    return fv_api_text(r, e, &r->out->message.cache_salt);
}

static fv_status read_cache(fv_api_reader *r, const fv_json_event *e) {
    bool text = e->type == FV_JSON_STRING;
    bool on = text && strcmp(e->text, "on") == 0, off = text && strcmp(e->text, "off") == 0;
    if (!on && !off) return FV_FAIL(FV_EINVAL, "it must be \"on\" or \"off\"");
    r->out->message.cache_off = off;
    return FV_OK;
}

/* ---- the table --------------------------------------------------------------------------- */

enum {
    ANSWERS = FV_API_CHAT | FV_API_TEXT,
    ANY = ANSWERS | FV_API_RESPONSE,
    ALL = ANY | FV_API_TOKENS,
    CHATS = FV_API_CHAT | FV_API_TOKENS | FV_API_RESPONSE,
};

typedef struct field {
    const char *name;
    unsigned kinds; /* fv_api_kind */
    enum { READ, NUMBER, INTEGER, FLAG } type;
    fv_status (*read)(fv_api_reader *r, const fv_json_event *e);
    size_t at;        /* offset in fv_api_request; of a NUMBER (float), in Sampling */
    int64_t min, max; /* of an INTEGER (32 bits) */
} field;

#define READ(name, kinds, read) name, kinds, READ, read, 0, 0, 0
#define NUMBER(name) #name, ANY, NUMBER, NULL, offsetof(sampling_message, name), 0, 0
#define INTEGER(name, kinds, member, min, max)                                                     \
    name, kinds, INTEGER, NULL, offsetof(fv_api_request, member), min, max
#define FLAG(name, kinds, member) name, kinds, FLAG, NULL, offsetof(fv_api_request, member), 0, 0

static const field fields[] = {
    {READ("model", ALL | FV_API_IDS, read_model)},
    {READ("messages", FV_API_CHAT | FV_API_TOKENS, fv_api_messages)},
    {READ("prompt", FV_API_TEXT | FV_API_TOKENS, read_prompt)},
    {READ("tokens", FV_API_IDS, read_tokens)},
    {READ("policy", ANY, read_policy)},
    {NUMBER(temperature)},
    {READ("top_p", ANY, fv_api_top_p)},
    {NUMBER(min_p)},
    {NUMBER(presence_penalty)},
    {NUMBER(frequency_penalty)},
    {READ("repetition_penalty", ANY, fv_api_repetition_penalty)},
    {READ("top_k", ANY, read_top_k)},
    {READ("logit_bias", ANY, read_bias)},
    {READ("seed", ANY, read_seed)},
    {READ("max_tokens", ANSWERS, fv_api_max_tokens)},
    {READ("max_completion_tokens", FV_API_CHAT, fv_api_max_tokens)},
    {READ("min_tokens", ANY, fv_api_min_tokens)},
    {READ("stop_token_ids", ANY, fv_api_stop_ids)},
    {READ("allowed_token_ids", ANY, fv_api_allowed_ids)},
    {READ("bad_words", ANY, fv_api_bad_words)},
    {READ("skip_special_tokens", ANY, fv_api_skip_special)},
    {FLAG("include_stop_str_in_output", ANY, message.include_stop)},
    {READ("truncate_prompt_tokens", ANSWERS, fv_api_truncate)},
    {READ("prompt_logprobs", ANSWERS, fv_api_prompt_logprobs)},
    {FLAG("return_token_ids", ANSWERS, ids)},
    {FLAG("return_tokens_as_token_ids", ANSWERS, as_ids)},
    {FLAG("echo", FV_API_TEXT, echo)},
    {READ("stop", ANY, read_stop)},
    {INTEGER("n", ANSWERS, n, 1, FV_API_CHOICES_MAX)},
    {READ("logprobs", ANSWERS, read_logprobs)},
    {INTEGER("top_logprobs", FV_API_CHAT | FV_API_RESPONSE, message.n_logprobs, 0, LOGPROBS_MAX)},
    {FLAG("stream", ANY, stream)},
    {READ("stream_options", ANY, read_stream_options)},
    {FLAG("ignore_eos", ANY, message.ignore_eos)},
    {FLAG("fovea_report", ANSWERS, report)},
    {FLAG("kept_tokens", ANSWERS, message.kept_tokens)},
    {INTEGER("keep_ms", ANSWERS, message.keep_ms, 0, UINT32_MAX)},
    {READ("conversation", ANSWERS, read_conversation)},
    {READ("cache_salt", ANSWERS, read_salt)},
    {READ("cache", ANSWERS, read_cache)},
    {READ("speculate", ANY, fv_api_speculate)},
    {READ("prediction", ANSWERS, fv_api_prediction)},
    {FLAG("return_token_strs", FV_API_TOKENS, texts)},
    {READ("add_special_tokens", ALL, fv_api_add_special_tokens)},
    {READ("add_generation_prompt", FV_API_CHAT | FV_API_TOKENS, fv_api_add_generation_prompt)},
    {READ("continue_final_message", FV_API_CHAT | FV_API_TOKENS, fv_api_continue_final_message)},
    {READ("chat_template", CHATS, fv_api_chat_template)},
    {READ("chat_template_kwargs", CHATS, fv_api_template_variables)},
    {READ("reasoning_effort", CHATS, fv_api_reasoning_effort)},
    {READ("mm_processor_kwargs", CHATS, fv_api_processor)},
    {READ("tools", CHATS, fv_api_tools)},
    {READ("tool_choice", CHATS, fv_api_tool_choice_field)},
    {FLAG("parallel_tool_calls", FV_API_CHAT | FV_API_RESPONSE, parallel_calls)},
    {READ("response_format", ANSWERS, fv_api_response_format)},
    {READ("structured_outputs", ANY, fv_api_structured_outputs)},
    {READ("guided_json", ANY, fv_api_guided_json)},
    {READ("guided_regex", ANY, fv_api_guided_regex)},
    {READ("guided_choice", ANY, fv_api_guided_choice)},
    {READ("guided_grammar", ANY, fv_api_guided_grammar)},
    {INTEGER("best_of", ANSWERS, best_of, 0, INT32_MAX)},
    {READ("user", ALL, fv_api_skip)},
};
enum { N_FIELD = sizeof fields / sizeof *fields };

_Static_assert(N_FIELD <= 64, "fv_api_reader.given has a bit for each");

static fv_status read_value(fv_api_reader *r, const field *f, const fv_json_event *e) {
    void *at = (char *)(f->type == NUMBER ? (void *)r->out->message.sampling : r->out) + f->at;
    double number;
    int64_t integer;
    bool flag;
    switch (f->type) {
    case READ: return f->read(r, e);
    case NUMBER:
        FV_TRY(fv_api_number(e, &number));
        *(float *)at = (float)number;
        return FV_OK;
    case INTEGER:
        FV_TRY(fv_api_integer(e, f->min, f->max, &integer));
        *(uint32_t *)at = (uint32_t)integer;
        return FV_OK;
    case FLAG:
        FV_TRY(fv_api_bool(e, &flag));
        *(protobuf_c_boolean *)at = flag;
        return FV_OK;
    }
    return FV_OK;
}

/* Reads a field of the body. Unknown fields are ignored, unless they ask for what does not exist
 * here. */
static fv_status read_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    const field *f = fields;
    if (e->type == FV_JSON_NULL) return FV_OK;
    bool is = false;
    if (r->out->kind == FV_API_RESPONSE) FV_TRY(fv_api_response_field(r, key, e, &is));
    if (is) return FV_OK;
    while (f < fields + N_FIELD && !(f->kinds & r->out->kind && strcmp(f->name, key) == 0)) f++;
    if (f == fields + N_FIELD) return fv_api_unsupported(r, key, e);
    r->given |= UINT64_C(1) << (f - fields);
    return read_value(r, f, e);
}

const fv_api_shape fv_api_body = {.member = read_field};

bool fv_api_field(int32_t i, fv_api_field_info *out) {
    static const fv_api_field_type types[] = {[READ] = FV_API_ANY,
                                              [NUMBER] = FV_API_NUMBER,
                                              [INTEGER] = FV_API_INTEGER,
                                              [FLAG] = FV_API_FLAG};
    const char *response = i >= N_FIELD ? fv_api_response_field_name(i - N_FIELD) : NULL;
    if (response) *out = (fv_api_field_info){.name = response, .kinds = FV_API_RESPONSE};
    if (i >= N_FIELD) return response != NULL;
    const field *f = &fields[i];
    *out = (fv_api_field_info){f->name, f->kinds, types[f->type], f->min, f->max};
    return true;
}

static bool was_given(const fv_api_reader *r, const char *name) {
    const field *f = fields;
    while (strcmp(f->name, name) != 0) f++;
    return r->given >> (f - fields) & 1;
}

/* ---- checks of several fields ------------------------------------------------------------ */

static fv_status require(fv_api_reader *r, bool holds, const char *name, const char *sentence) {
    if (holds) return FV_OK;
    fv_api_name(r, name);
    return FV_FAIL(FV_EINVAL, "%s", sentence);
}

/* best_of makes so many answers and returns the best n of them: there is nothing to rank up to n. */
static fv_status check_best_of(fv_api_reader *r) {
    const fv_api_request *q = r->out;
    if (q->best_of <= q->n) return FV_OK;
    fv_api_name(r, "best_of");
    return FV_FAIL(
        FV_EINVAL,
        "answers are not ranked: it must not exceed n, and is %d where n is %d; ask for n "
        "answers and choose",
        q->best_of, q->n);
}

static fv_status check_answers(fv_api_reader *r) {
    fv_api_request *q = r->out;
    FV_TRY(check_best_of(r));
    if (q->n_prompt == 0) { /* a chat */
        FV_TRY(fv_api_room(r->arena, &q->prompts, 0, sizeof *q->prompts));
        q->prompts[q->n_prompt++] = q->message.prompt;
    }
    FV_TRY(require(r, q->n_prompt == 1 || q->kind == FV_API_TEXT, "prompt", "it must be one text"));
    FV_TRY(require(r, q->n_prompt == 1 || !was_given(r, "conversation"), "conversation",
                   "it is continued by one prompt, not by a list"));
    if (q->n_prompt * q->n > FV_API_ANSWERS_MAX) {
        fv_api_name(r, "n");
        return FV_FAIL(FV_EINVAL, "%d prompts with n = %d: at most %d answers to a request",
                       q->n_prompt, q->n, FV_API_ANSWERS_MAX);
    }
    return FV_OK;
}

/* Whether the answer goes on with a text of the caller's: both joined are then one text. In a chat, the text is
 * the last turn's, as the worker decides (text/chat.h); where that turn calls tools, too, and a new
 * answer begins, the answer keeps its first space. */
static bool continues_text(const fv_api_reader *r) {
    const Fovea__Inference__V1__Chat *chat = r->out->message.prompt->chat;
    if (r->out->kind == FV_API_TEXT) return true;
    if (r->out->kind != FV_API_CHAT || r->chat.continues_given || r->chat.opens_given)
        return r->chat.continues;
    const Fovea__Inference__V1__Turn *last = chat->n_turns ? chat->turns[chat->n_turns - 1] : NULL;
    return last && strcmp(last->role, "assistant") == 0 && !last->no_content;
}

/* Checks what is returned of the prompt, and asks for it. */
static fv_status check_prompt_fields(fv_api_reader *r) {
    fv_api_request *q = r->out;
    FV_TRY(require(r, !q->prompt_only || q->echo, "max_tokens",
                   "it must be at least 1; 0 needs \"echo\": true"));
    FV_TRY(require(r, !q->prompt_logprobs || !q->stream, "prompt_logprobs",
                   "a stream does not have them: leave out \"stream\""));
    if (q->kind == FV_API_RESPONSE) q->logprobs |= q->message.n_logprobs > 0;
    if (q->echo && q->logprobs) fv_api_want_prompt_logprobs(q, q->message.n_logprobs);
    q->message.prompt_tokens = q->echo || q->ids;
    q->message.continue_text = continues_text(r);
    q->message.token_texts = q->logprobs || q->prompt_logprobs || q->echo;
    return FV_OK;
}

static fv_status check_fields(fv_api_reader *r) {
    fv_api_request *q = r->out;
    const char *prompt = q->kind == FV_API_TEXT       ? "prompt"
                         : q->kind == FV_API_RESPONSE ? "input"
                                                      : "messages";
    if (q->kind == FV_API_IDS)
        return require(r, q->message.prompt, "tokens", "it must be a list of ids");
    FV_TRY(require(r, q->message.prompt, prompt, "this field is required"));
    if (was_given(r, "messages") && was_given(r, "prompt"))
        return FV_FAIL(FV_EINVAL, "messages and prompt cannot be combined");
    FV_TRY(require(r, q->kind != FV_API_CHAT || !q->message.n_logprobs || q->logprobs,
                   "top_logprobs", "it needs \"logprobs\": true"));
    FV_TRY(require(r, !was_given(r, "stream_options") || q->stream, "stream_options",
                   "it needs \"stream\": true"));
    FV_TRY(check_answers(r));
    return check_prompt_fields(r);
}

static fv_status finish_policy(fv_api_reader *r) {
    fv_policy policy;
    if (!r->policy || !*r->policy) return FV_OK;
    fv_status st = fv_policy_parse(r->policy, &policy);
    if (st == FV_OK) st = fv_policy_to_message(&policy, r->arena, &r->out->message.policy);
    if (st != FV_OK) fv_api_name(r, "policy");
    return st;
}

fv_status fv_api_body_begin(fv_api_reader *r) {
    request_message *m = &r->out->message;
    fovea__inference__v1__generate_request__init(m);
    FV_TRY(FV_ARENA_NEW(r->arena, 1, m->sampling));
    fovea__inference__v1__sampling__init(m->sampling);
    m->sampling->temperature = 1; /* OpenAI's default */
    r->out->parallel_calls = r->out->response.store = true;
    return r->opt.policy ? set_policy(r, r->opt.policy, "the header x-fovea-policy") : FV_OK;
}

fv_status fv_api_body_end(fv_api_reader *r) {
    FV_TRY(check_fields(r));
    if (r->out->kind == FV_API_RESPONSE) FV_TRY(fv_api_response_end(r));
    FV_TRY(fv_api_form_end(r));
    FV_TRY(fv_api_tools_end(r));
    FV_TRY(fv_api_template_end(r));
    return finish_policy(r);
}

void fv_api_bytes_free(const fv_api_bytes *all) {
    for (const fv_api_bytes *b = all; b; b = b->next) free(b->data);
}
