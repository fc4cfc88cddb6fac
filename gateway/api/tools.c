/* Reads "tools" and "tool_choice". The tools go to the chat template as they came, once they are
 * checked: a list of functions with names. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/reader.h"
#include "gateway/api/tool_schema.h"

enum { NAME_MAX_BYTES = 64 };

fv_status fv_api_tools(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_ARRAY) return FV_FAIL(FV_EINVAL, "it must be a list of tools");
    return fv_api_capture_value(r, e, &r->chat.tools);
}

/* ---- tool_choice ------------------------------------------------------------------------- */

static fv_status refuse_choice(void) {
    return FV_FAIL(FV_EINVAL, "it must be \"auto\", \"none\", \"required\" or {\"type\": "
                              "\"function\"} with a function's name");
}

/* An object is read when the body ends, as the tools may come after it. */
fv_status fv_api_tool_choice_field(fv_api_reader *r, const fv_json_event *e) {
    static const char *const words[] = {[FV_API_TOOL_AUTO] = "auto",
                                        [FV_API_TOOL_NONE] = "none",
                                        [FV_API_TOOL_REQUIRED] = "required"};
    if (e->type == FV_JSON_OBJECT) return fv_api_capture_value(r, e, &r->chat.tool_choice);
    for (size_t i = 0; e->type == FV_JSON_STRING && i < sizeof words / sizeof *words; i++) {
        if (strcmp(e->text, words[i]) != 0) continue;
        r->out->tool_choice = (fv_api_tool_choice)i;
        return FV_OK;
    }
    return refuse_choice();
}

/* {"type": "function", "function": {"name": ...}}, or of a response {"type": "function", "name": ...} */
static fv_status read_named(fv_api_reader *r) {
    json_t *v = json_loads(r->chat.tool_choice, 0, NULL);
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *f = json_object_get(v, "function");
    const char *name = json_string_value(json_object_get(f ? f : v, "name"));
    const bool is = type && name && strcmp(type, "function") == 0;
    fv_status st =
        is ? fv_arena_strndup(r->arena, name, strlen(name), &r->out->tool_name) : refuse_choice();
    r->out->tool_choice = FV_API_TOOL_NAMED;
    json_decref(v);
    return st;
}

/* ---- calls that must be made ------------------------------------------------------------- */

/* The call's form takes the place of the text's: there will be no text. */
static fv_status constrain(fv_api_reader *r, const json_t *list) {
    const char *name = r->out->tool_name;
    Fovea__Inference__V1__TokenRules *rules;
    if (name && !fv_api_find_tool(list, name))
        return FV_FAIL(FV_EINVAL, "no tool has the name '%.64s'", name);
    FV_TRY(fv_api_rules_of(r, &rules));
    FV_TRY(FV_ARENA_NEW(r->arena, 1, rules->constraint));
    fovea__inference__v1__constraint__init(rules->constraint);
    rules->constraint->after_reasoning = true;
    rules->constraint->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_SCHEMA;
    return fv_api_tool_schema(list, name, r->arena, &rules->constraint->json_schema);
}

/* Checks tool_choice against the tools, NULL: none. */
static fv_status end_choice(fv_api_reader *r, const json_t *list) {
    if (r->chat.tool_choice) FV_TRY(read_named(r));
    if (r->out->tool_choice < FV_API_TOOL_REQUIRED || r->out->kind == FV_API_TOKENS) return FV_OK;
    if (json_array_size(list) == 0) return FV_FAIL(FV_EINVAL, "there are no tools to call");
    return constrain(r, list);
}

/* ---- the end ----------------------------------------------------------------------------- */

static bool is_name(const char *name) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t n = name ? strlen(name) : 0;
    return n > 0 && n <= NAME_MAX_BYTES && strspn(name, letters) == n;
}

/* {"type": "function", "name": ...}, as responses have it -> {"type": "function", "function": {"name":
 * ...}}, as chats and templates have it. Gives the list; NULL: out of memory. */
static json_t *nest(const json_t *flat) {
    json_t *list = json_array(), *tool;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)flat, i, tool) {
        const json_t *type = json_object_get(tool, "type");
        json_t *f = json_is_object(tool) ? json_copy(tool) : json_object();
        json_object_del(f, "type");
        json_array_append_new(list, json_pack("{s:O?, s:o}", "type", type, "function", f));
    }
    return list;
}

static fv_status check_tool(const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *f = json_object_get(tool, "function");
    const json_t *parameters = json_object_get(f, "parameters");
    if (!type || strcmp(type, "function") != 0)
        return FV_FAIL(FV_EINVAL, "a tool must be {\"type\": \"function\", \"function\": {...}}; "
                                  "other types are not supported");
    if (!is_name(json_string_value(json_object_get(f, "name"))))
        return FV_FAIL(FV_EINVAL, "a function's name has 1..%d letters, digits, '_' and '-'",
                       NAME_MAX_BYTES);
    if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
        return FV_FAIL(FV_EINVAL, "a function's parameters must be a JSON schema, an object");
    return FV_OK;
}

static fv_status check_tools(const json_t *list) {
    const json_t *tool;
    size_t i;
    if (json_array_size(list) > FV_API_TOOLS_MAX)
        return FV_FAIL(FV_EINVAL, "%zu tools: at most %d", json_array_size(list), FV_API_TOOLS_MAX);
    json_array_foreach((json_t *)(uintptr_t)list, i, tool) {
        fv_status st = check_tool(tool);
        if (st != FV_OK) return FV_FAIL(st, "tool %zu: %s", i, fv_last_error());
    }
    return FV_OK;
}

static fv_status read_tools(const char *text, bool flat, json_t **out) {
    if (strlen(text) > FV_API_TOOLS_BYTES)
        return FV_FAIL(FV_EINVAL, "the tools have more than %d bytes", FV_API_TOOLS_BYTES);
    json_t *list = json_loads(text, 0, NULL);
    if (list && flat) {
        json_t *nested = nest(list);
        json_decref(list);
        list = nested;
    }
    if (!list) return FV_FAIL(FV_EINVAL, "the tools are nested too deep, or out of memory");
    *out = list;
    return FV_OK;
}

/* Puts the tools into the arena as templates read them. */
static fv_status keep_nested(fv_api_reader *r, const json_t *list) {
    char *text = json_dumps(list, JSON_COMPACT);
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for tools");
    r->out->response.tools = r->chat.tools;
    fv_status st = fv_arena_strndup(r->arena, text, strlen(text), &r->chat.tools);
    free(text);
    return st;
}

static fv_status end_tools(fv_api_reader *r, json_t **list) {
    const bool flat = r->out->kind == FV_API_RESPONSE;
    if (!r->chat.tools) return FV_OK;
    FV_TRY(read_tools(r->chat.tools, flat, list));
    FV_TRY(check_tools(*list));
    return flat ? keep_nested(r, *list) : FV_OK;
}

/* An empty list is no tools. */
fv_status fv_api_tools_end(fv_api_reader *r) {
    json_t *list = NULL;
    fv_status st = end_tools(r, &list);
    if (st != FV_OK) fv_api_name(r, "tools");
    if (st == FV_OK && (st = end_choice(r, list)) != FV_OK) fv_api_name(r, "tool_choice");
    if (json_array_size(list) == 0 || r->out->tool_choice == FV_API_TOOL_NONE) r->chat.tools = NULL;
    r->out->tools = r->chat.tools;
    json_decref(list);
    return st;
}
