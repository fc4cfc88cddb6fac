/* Responses and their items, in the shapes of OpenAI's reference. */
#include "gateway/api/response.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/api/message_json.h"

/* ---- the response ------------------------------------------------------------------------ */

static json_t *text_or_null(const char *text) {
    return text ? fv_json_text(text, strlen(text)) : json_null();
}

static json_t *parsed(const char *text, json_t *otherwise) {
    json_t *v = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    if (!v) return otherwise;
    json_decref(otherwise);
    return v;
}

static json_t *choice_json(const fv_api_request *q) {
    static const char *const words[] = {[FV_API_TOOL_AUTO] = "auto",
                                        [FV_API_TOOL_NONE] = "none",
                                        [FV_API_TOOL_REQUIRED] = "required"};
    if (q->tool_choice != FV_API_TOOL_NAMED) return json_string(words[q->tool_choice]);
    return json_pack("{s:s, s:s}", "type", "function", "name", q->tool_name);
}

json_t *fv_api_response_echo(const fv_api_request *q) {
    const fv_api_response_fields *f = &q->response;
    const Fovea__Inference__V1__GenerateRequest *m = &q->message;
    const Fovea__Inference__V1__Sampling *s = m->sampling;
    const double top_p =
        s->nucleus_case == FOVEA__INFERENCE__V1__SAMPLING__NUCLEUS_TOP_P ? (double)s->top_p : 1;
    return json_pack(
        "{s:b, s:o, s:o, s:n, s:o, s:b, s:o, s:{s:o, s:n}, s:s, s:b, s:f, s:{s:o}, s:o, s:o, "
        "s:I, s:f, s:s, s:n}",
        "background", 0, "instructions", text_or_null(f->instructions), "max_output_tokens",
        m->max_tokens ? json_integer(m->max_tokens) : json_null(), "max_tool_calls", "metadata",
        parsed(f->metadata, json_object()), "parallel_tool_calls", (int)q->parallel_calls,
        "previous_response_id", text_or_null(f->previous), "reasoning", "effort",
        text_or_null(f->effort), "summary", "service_tier", "default", "store", (int)f->store,
        "temperature", (double)s->temperature, "text", "format",
        parsed(f->format, json_pack("{s:s}", "type", "text")), "tool_choice", choice_json(q),
        "tools", parsed(f->tools, json_array()), "top_logprobs", (json_int_t)m->n_logprobs, "top_p",
        top_p, "truncation", m->truncate_case ? "auto" : "disabled", "user");
}

static json_t *usage_json(const fv_api_usage *u) {
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u->n_prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u->n_cached,
                     "output_tokens", (json_int_t)u->n_answer, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)u->n_thought, "total_tokens",
                     (json_int_t)(u->n_prompt + u->n_answer));
}

json_t *fv_api_response(const fv_api_names *names, const json_t *echo, const char *status,
                        json_t *output, json_t *error, const fv_api_usage *usage) {
    const bool cut = strcmp(status, "incomplete") == 0;
    json_t *details = cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null();
    json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:o, s:o, s:o}", "id", names->id,
                          "object", "response", "created_at", (json_int_t)names->created, "status",
                          status, "error", error ? error : json_null(), "incomplete_details",
                          details, "model", fv_json_text(names->model, strlen(names->model)),
                          "output", output, "usage", usage ? usage_json(usage) : json_null());
    if (o) json_object_update_missing(o, (json_t *)(uintptr_t)echo);
    return o;
}

/* ---- items ------------------------------------------------------------------------------- */

static const char *status_of(bool done) { return done ? "completed" : "in_progress"; }

json_t *fv_api_content(bool thought, const char *text, size_t n, json_t *logprobs) {
    if (thought)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", fv_json_text(text, n));
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", fv_json_text(text, n),
                     "annotations", "logprobs", logprobs ? json_incref(logprobs) : json_array());
}

json_t *fv_api_item_message(const char *id, bool done, const char *text, size_t n,
                            json_t *logprobs) {
    json_t *content = json_array();
    if (done) json_array_append_new(content, fv_api_content(false, text, n, logprobs));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status",
                     status_of(done), "role", "assistant", "content", content);
}

json_t *fv_api_item_reasoning(const char *id, bool done, const char *text, size_t n) {
    json_t *content = json_array();
    if (done) json_array_append_new(content, fv_api_content(true, text, n, NULL));
    return json_pack("{s:s, s:s, s:s, s:[], s:o}", "id", id, "type", "reasoning", "status",
                     status_of(done), "summary", "content", content);
}

json_t *fv_api_item_call(const char *id, bool done, const fv_api_call *call) {
    const char *arguments = done ? call->arguments : "";
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "function_call", "status",
                     status_of(done), "call_id", call->id, "name", call->name, "arguments",
                     fv_json_text(arguments, strlen(arguments)));
}

/* ---- turns from items -------------------------------------------------------------------- */

static const char *text_of(const json_t *item) {
    const json_t *part = json_array_get(json_object_get(item, "content"), 0);
    const char *text = json_string_value(json_object_get(part, "text"));
    return text ? text : "";
}

/* Joins the texts of the messages among the items. */
static fv_status join_texts(const json_t *output, fv_arena *arena, char **out) {
    const json_t *item;
    size_t i, n = 1;
    json_array_foreach((json_t *)(uintptr_t)output, i, item) n += strlen(text_of(item));
    FV_TRY(FV_ARENA_NEW(arena, n, *out));
    char *at = *out;
    *at = '\0';
    json_array_foreach((json_t *)(uintptr_t)output, i, item) {
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type && strcmp(type, "message") == 0) at = stpcpy(at, text_of(item));
    }
    return FV_OK;
}

static json_t *members_of(const json_t *output) {
    json_t *members = json_object(), *calls = json_array();
    const json_t *item;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)output, i, item) {
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type && strcmp(type, "reasoning") == 0)
            json_object_set_new(members, "reasoning_content", json_string(text_of(item)));
        if (!type || strcmp(type, "function_call") != 0) continue;
        json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id",
                                               json_object_get(item, "call_id"), "type", "function",
                                               "function", "name", json_object_get(item, "name"),
                                               "arguments", json_object_get(item, "arguments")));
    }
    if (json_array_size(calls) > 0) json_object_set(members, "tool_calls", calls);
    json_decref(calls);
    return members;
}

fv_status fv_api_output_turn(const json_t *output, fv_arena *arena,
                             Fovea__Inference__V1__Turn **out) {
    FV_TRY(FV_ARENA_NEW(arena, 1, *out));
    fovea__inference__v1__turn__init(*out);
    (*out)->role = (char *)(uintptr_t) "assistant";
    FV_TRY(join_texts(output, arena, &(*out)->text));
    (*out)->no_content = !*(*out)->text;
    json_t *members = members_of(output);
    char *text = json_object_size(members) > 0 ? json_dumps(members, JSON_COMPACT) : NULL;
    fv_status st = text ? fv_arena_strndup(arena, text, strlen(text), &(*out)->members) : FV_OK;
    free(text);
    json_decref(members);
    return st;
}
