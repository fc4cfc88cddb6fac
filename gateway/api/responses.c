/* Reads the fields that only requests of the Responses API have; those that it shares with chats are
 * in request.c. */
#include <jansson.h>
#include <string.h>

#include "gateway/api/reader.h"

enum { METADATA_MAX = 16, METADATA_KEY_MAX = 64, METADATA_VALUE_MAX = 512 };

static fv_status read_instructions(fv_api_reader *r, const fv_json_event *e) {
    return fv_api_text(r, e, &r->out->response.instructions);
}

static fv_status read_max_tokens(fv_api_reader *r, const fv_json_event *e) {
    int64_t n;
    FV_TRY(fv_api_integer(e, 1, INT32_MAX, &n));
    r->out->message.max_tokens = (uint32_t)n;
    return FV_OK;
}

static fv_status read_previous(fv_api_reader *r, const fv_json_event *e) {
    if (e->type == FV_JSON_STRING && (e->n == 0 || e->n > FV_API_RESPONSE_ID_MAX))
        return FV_FAIL(FV_EINVAL, "not the id of a response");
    return fv_api_text(r, e, &r->out->response.previous);
}

static fv_status read_store(fv_api_reader *r, const fv_json_event *e) {
    return fv_api_bool(e, &r->out->response.store);
}

static fv_status read_metadata(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_capture_value(r, e, &r->out->response.metadata);
}

static fv_status read_truncation(fv_api_reader *r, const fv_json_event *e) {
    Fovea__Inference__V1__GenerateRequest *m = &r->out->message;
    const bool is_auto = e->type == FV_JSON_STRING && strcmp(e->text, "auto") == 0;
    if (!is_auto && (e->type != FV_JSON_STRING || strcmp(e->text, "disabled") != 0))
        return FV_FAIL(FV_EINVAL, "it must be \"auto\" or \"disabled\"");
    if (!is_auto) return FV_OK;
    m->truncate_case = FOVEA__INFERENCE__V1__GENERATE_REQUEST__TRUNCATE_TRUNCATE_PROMPT_TOKENS;
    m->truncate_prompt_tokens = INT32_MAX;
    return FV_OK;
}

/* ---- log-probabilities ------------------------------------------------------------------- */

/* The other names that OpenAI has are of what a response here has anyway, or never has. */
static fv_status read_include_name(fv_api_reader *r, const char *key, const fv_json_event *e) {
    (void)key;
    if (e->type != FV_JSON_STRING) return FV_FAIL(FV_EINVAL, "it must be a string");
    r->out->logprobs |= strcmp(e->text, "message.output_text.logprobs") == 0;
    return FV_OK;
}

static const fv_api_shape include = {.member = read_include_name};

static fv_status read_include(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_ARRAY) return FV_FAIL(FV_EINVAL, "it must be a list");
    return fv_api_enter(r, &include);
}

/* ---- reasoning, text --------------------------------------------------------------------- */

static fv_status read_reasoning_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (e->type == FV_JSON_NULL) return FV_OK;
    return strcmp(key, "effort") == 0 ? fv_api_reasoning_effort(r, e) : fv_api_skip(r, e);
}

static const fv_api_shape reasoning = {.member = read_reasoning_field};

static fv_status read_reasoning(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_enter(r, &reasoning);
}

/* "format" is what response_format is in a chat. */
static fv_status read_text_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (e->type == FV_JSON_NULL) return FV_OK;
    return strcmp(key, "format") == 0 ? fv_api_response_format(r, e) : fv_api_ignore(r, e);
}

static const fv_api_shape text = {.member = read_text_field};

static fv_status read_text(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_enter(r, &text);
}

/* ---- what does not exist here ------------------------------------------------------------ */

static fv_status read_background(fv_api_reader *r, const fv_json_event *e) {
    bool asked;
    (void)r;
    FV_TRY(fv_api_bool(e, &asked));
    return asked ? FV_FAIL(FV_EINVAL, "responses are not made in the background: it must be false; "
                                      "use \"stream\": true")
                 : FV_OK;
}

static fv_status read_conversation(fv_api_reader *r, const fv_json_event *e) {
    (void)r, (void)e;
    return FV_FAIL(FV_EINVAL, "conversations are not kept here: use previous_response_id");
}

static fv_status read_prompt(fv_api_reader *r, const fv_json_event *e) {
    (void)r, (void)e;
    return FV_FAIL(FV_EINVAL, "prompts are not kept here: use input and instructions");
}

/* ---- the table --------------------------------------------------------------------------- */

static const struct field {
    const char *name;
    fv_status (*read)(fv_api_reader *r, const fv_json_event *e);
} fields[] = {
    {"input", fv_api_input},
    {"instructions", read_instructions},
    {"max_output_tokens", read_max_tokens},
    {"previous_response_id", read_previous},
    {"store", read_store},
    {"metadata", read_metadata},
    {"truncation", read_truncation},
    {"reasoning", read_reasoning},
    {"text", read_text},
    {"include", read_include},
    {"background", read_background}, /* the first that is refused, unless it asks for nothing */
    {"conversation", read_conversation},
    {"prompt", read_prompt},
};
enum { N_FIELD = sizeof fields / sizeof *fields };

const char *fv_api_response_field_name(int32_t i) {
    return fields[i].read != read_background ? fields[i].name : NULL;
}

fv_status fv_api_response_field(fv_api_reader *r, const char *key, const fv_json_event *e,
                                bool *is) {
    for (int32_t i = 0; i < N_FIELD; i++) {
        if (strcmp(fields[i].name, key) != 0) continue;
        *is = true;
        return fields[i].read(r, e);
    }
    *is = false;
    return FV_OK;
}

/* ---- the end ----------------------------------------------------------------------------- */

static fv_status check_metadata(const json_t *metadata) {
    const char *key;
    json_t *v;
    if (json_object_size(metadata) > METADATA_MAX)
        return FV_FAIL(FV_EINVAL, "metadata: more than %d members", METADATA_MAX);
    json_object_foreach((json_t *)(uintptr_t)metadata, key, v) {
        if (!json_is_string(v) || strlen(key) > METADATA_KEY_MAX ||
            json_string_length(v) > METADATA_VALUE_MAX)
            return FV_FAIL(FV_EINVAL,
                           "metadata: keys have at most %d bytes, and values are "
                           "strings of at most %d",
                           METADATA_KEY_MAX, METADATA_VALUE_MAX);
    }
    return FV_OK;
}

fv_status fv_api_response_end(fv_api_reader *r) {
    const char *given = r->out->response.metadata;
    if (!given) return FV_OK;
    json_t *metadata = json_loads(given, 0, NULL);
    fv_status st = check_metadata(metadata);
    json_decref(metadata);
    if (st != FV_OK) fv_api_name(r, "metadata");
    return st;
}
