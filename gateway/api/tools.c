/* Reads "tools" and "tool_choice". The tools go to the chat template as they came, once they are
 * checked: a list of functions with names. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/reader.h"

enum { NAME_MAX_BYTES = 64 };

fv_status fv_api_tools(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_ARRAY) return FV_FAIL(FV_EINVAL, "it must be a list of tools");
    return fv_api_capture_value(r, e, &r->chat.tools);
}

/* ---- tool_choice ------------------------------------------------------------------------- */

static fv_status refuse_choice(void) {
    return FV_FAIL(FV_EINVAL, "it must be \"auto\" or \"none\": calls that a model must make are "
                              "not supported");
}

/* {"type": "function", "function": {"name": ...}} */
fv_status fv_api_tool_choice_field(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_STRING) return refuse_choice();
    if (strcmp(e->text, "none") == 0)
        r->out->tool_choice = FV_API_TOOL_NONE;
    else if (strcmp(e->text, "auto") != 0)
        return refuse_choice();
    return FV_OK;
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

/* An empty list is no tools. */
fv_status fv_api_tools_end(fv_api_reader *r) {
    const bool flat = r->out->kind == FV_API_RESPONSE;
    json_t *list = NULL;
    if (!r->chat.tools) return FV_OK;
    fv_status st = read_tools(r->chat.tools, flat, &list);
    if (st == FV_OK) st = check_tools(list);
    if (st == FV_OK && flat) st = keep_nested(r, list);
    if (json_array_size(list) == 0 || r->out->tool_choice == FV_API_TOOL_NONE) r->chat.tools = NULL;
    r->out->tools = r->chat.tools;
    json_decref(list);
    if (st != FV_OK) fv_api_name(r, "tools");
    return st;
}
