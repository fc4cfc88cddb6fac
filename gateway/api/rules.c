/* Reads the fields that say which tokens an answer may have, what ends it, and what is returned of its
 * prompt: those of vLLM's sampling parameters beside OpenAI's. */
#include <string.h>

#include "gateway/api/reader.h"

typedef Fovea__Inference__V1__TokenRules rules_message;

enum {
    ALLOWED_MAX = 1 << 15,
    STOP_IDS_MAX = 256,
    BAD_WORDS_MAX = 256,
    BAD_WORD_BYTES_MAX = 256,
    LOGPROBS_MAX = 20,
};

fv_status fv_api_rules_of(fv_api_reader *r, rules_message **out) {
    rules_message **rules = &r->out->message.rules;
    if (!*rules) {
        FV_TRY(FV_ARENA_NEW(r->arena, 1, *rules));
        fovea__inference__v1__token_rules__init(*rules);
    }
    *out = *rules;
    return FV_OK;
}

/* ---- lists ------------------------------------------------------------------------------- */

static fv_status add_id(fv_api_reader *r, uint32_t **ids, size_t *n, size_t most,
                        const fv_json_event *e) {
    int64_t id;
    FV_TRY(fv_api_integer(e, 0, INT32_MAX, &id));
    if (*n == most) {
        fv_api_unnumber(r);
        return FV_FAIL(FV_EINVAL, "more than %zu token ids", most);
    }
    FV_TRY(fv_api_room(r->arena, ids, *n, sizeof **ids));
    (*ids)[(*n)++] = (uint32_t)id;
    return FV_OK;
}

static fv_status add_allowed(fv_api_reader *r, const char *key, const fv_json_event *e) {
    rules_message *m = r->out->message.rules;
    (void)key;
    return add_id(r, &m->allowed_token_ids, &m->n_allowed_token_ids, ALLOWED_MAX, e);
}

static fv_status add_stop_id(fv_api_reader *r, const char *key, const fv_json_event *e) {
    rules_message *m = r->out->message.rules;
    (void)key;
    return add_id(r, &m->stop_token_ids, &m->n_stop_token_ids, STOP_IDS_MAX, e);
}

static fv_status add_word(fv_api_reader *r, const char *key, const fv_json_event *e) {
    rules_message *m = r->out->message.rules;
    (void)key;
    if (m->n_bad_words == BAD_WORDS_MAX) {
        fv_api_unnumber(r);
        return FV_FAIL(FV_EINVAL, "more than %d words", BAD_WORDS_MAX);
    }
    if (e->type == FV_JSON_STRING && (e->n == 0 || e->n > BAD_WORD_BYTES_MAX))
        return FV_FAIL(FV_EINVAL, "a word of %zu bytes; it must have 1 to %d", e->n,
                       BAD_WORD_BYTES_MAX);
    FV_TRY(fv_api_room(r->arena, &m->bad_words, m->n_bad_words, sizeof *m->bad_words));
    FV_TRY(fv_api_text(r, e, &m->bad_words[m->n_bad_words]));
    m->n_bad_words++;
    return FV_OK;
}

static fv_status end_allowed(fv_api_reader *r) {
    return fv_api_top(r)->n ? FV_OK : FV_FAIL(FV_EINVAL, "it must have at least one id");
}

static fv_status read_list(fv_api_reader *r, const fv_json_event *e, const fv_api_shape *shape) {
    rules_message *m;
    if (e->type != FV_JSON_ARRAY) return FV_FAIL(FV_EINVAL, "it must be a list");
    FV_TRY(fv_api_rules_of(r, &m));
    return fv_api_enter(r, shape);
}

fv_status fv_api_allowed_ids(fv_api_reader *r, const fv_json_event *e) {
    static const fv_api_shape shape = {.member = add_allowed, .end = end_allowed};
    return read_list(r, e, &shape);
}

fv_status fv_api_stop_ids(fv_api_reader *r, const fv_json_event *e) {
    static const fv_api_shape shape = {.member = add_stop_id};
    return read_list(r, e, &shape);
}

fv_status fv_api_bad_words(fv_api_reader *r, const fv_json_event *e) {
    static const fv_api_shape shape = {.member = add_word};
    return read_list(r, e, &shape);
}

/* ---- numbers for which 0 is a value ------------------------------------------------------- */

fv_status fv_api_min_tokens(fv_api_reader *r, const fv_json_event *e) {
    rules_message *m;
    int64_t n;
    FV_TRY(fv_api_integer(e, 0, INT32_MAX, &n));
    FV_TRY(fv_api_rules_of(r, &m));
    m->min_tokens = (uint32_t)n;
    return FV_OK;
}

fv_status fv_api_top_p(fv_api_reader *r, const fv_json_event *e) {
    Fovea__Inference__V1__Sampling *s = r->out->message.sampling;
    double p;
    FV_TRY(fv_api_number(e, &p));
    s->nucleus_case = FOVEA__INFERENCE__V1__SAMPLING__NUCLEUS_TOP_P;
    s->top_p = (float)p;
    return FV_OK;
}

fv_status fv_api_repetition_penalty(fv_api_reader *r, const fv_json_event *e) {
    Fovea__Inference__V1__Sampling *s = r->out->message.sampling;
    double penalty;
    FV_TRY(fv_api_number(e, &penalty));
    s->repetition_case = FOVEA__INFERENCE__V1__SAMPLING__REPETITION_REPETITION_PENALTY;
    s->repetition_penalty = (float)penalty;
    return FV_OK;
}

fv_status fv_api_truncate(fv_api_reader *r, const fv_json_event *e) {
    Fovea__Inference__V1__GenerateRequest *m = &r->out->message;
    int64_t n;
    FV_TRY(fv_api_integer(e, -1, INT32_MAX, &n)); /* vLLM writes -1 for the whole context */
    if (n == 0) return FV_FAIL(FV_EINVAL, "it must be -1, or 1 to %d", INT32_MAX);
    m->truncate_case = FOVEA__INFERENCE__V1__GENERATE_REQUEST__TRUNCATE_TRUNCATE_PROMPT_TOKENS;
    m->truncate_prompt_tokens = n < 0 ? INT32_MAX : (uint32_t)n;
    return FV_OK;
}

fv_status fv_api_prompt_logprobs(fv_api_reader *r, const fv_json_event *e) {
    int64_t n;
    FV_TRY(fv_api_integer(e, 0, LOGPROBS_MAX, &n));
    r->out->prompt_logprobs = true;
    fv_api_want_prompt_logprobs(r->out, (uint32_t)n);
    return FV_OK;
}

void fv_api_want_prompt_logprobs(fv_api_request *q, uint32_t n) {
    Fovea__Inference__V1__GenerateRequest *m = &q->message;
    if (m->prompt_alternatives_case && m->prompt_logprobs >= n) return;
    m->prompt_alternatives_case =
        FOVEA__INFERENCE__V1__GENERATE_REQUEST__PROMPT_ALTERNATIVES_PROMPT_LOGPROBS;
    m->prompt_logprobs = n;
}

fv_status fv_api_skip_special(fv_api_reader *r, const fv_json_event *e) {
    bool skip;
    FV_TRY(fv_api_bool(e, &skip));
    r->out->message.special_tokens = !skip;
    r->out->special_given = true;
    return FV_OK;
}

/* A text completion of no tokens returns its prompt: `echo` decides whether that is meant. */
fv_status fv_api_max_tokens(fv_api_reader *r, const fv_json_event *e) {
    int64_t n;
    FV_TRY(fv_api_integer(e, r->out->kind == FV_API_TEXT ? 0 : 1, INT32_MAX, &n));
    r->out->prompt_only = n == 0;
    r->out->message.max_tokens = n ? (uint32_t)n : 1;
    return FV_OK;
}
