/* tool_choice "required" or a named function: the schema that the answer then has.
 *
 *   a named function   its parameters: the answer is the arguments
 *   required           {"anyOf": [{"name": "f", "arguments": its parameters}, ...]}
 *
 * In the latter, references within the parameters are led to where these are now. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/reader.h"
#include "gateway/api/tool_schema.h"

enum { REF_MAX = 512, DEPTH_MAX = 512 };

/* Moves "#/x" and "#" below `base`. */
static fv_status move_ref(json_t *schema, const char *base) {
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    char moved[REF_MAX];
    if (!ref || ref[0] != '#' || (ref[1] && ref[1] != '/')) return FV_OK;
    if (snprintf(moved, sizeof moved, "#%s%s", base, ref + 1) >= (int)sizeof moved)
        return FV_FAIL(FV_EINVAL, "a $ref of more than %d bytes", REF_MAX);
    json_object_set_new(schema, "$ref", json_string(moved));
    return FV_OK;
}

static fv_status move_refs(json_t *at, const char *base, int depth) {
    const char *key;
    json_t *v;
    size_t i;
    if (depth > DEPTH_MAX) return FV_FAIL(FV_EINVAL, "parameters nested deeper than %d", DEPTH_MAX);
    if (json_is_object(at)) FV_TRY(move_ref(at, base));
    if (json_is_object(at)) json_object_foreach(at, key, v) FV_TRY(move_refs(v, base, depth + 1));
    json_array_foreach(at, i, v) FV_TRY(move_refs(v, base, depth + 1));
    return FV_OK;
}

/* A function without parameters has any object. Gives the schema; NULL: out of memory. */
static json_t *parameters_of(const json_t *tool) {
    const json_t *f = json_object_get(tool, "function"), *p = json_object_get(f, "parameters");
    return json_is_object(p) ? json_deep_copy(p) : json_pack("{s:s}", "type", "object");
}

static fv_status add_tool(json_t *list, const json_t *tool) {
    char base[64];
    const size_t i = json_array_size(list);
    const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
    json_t *parameters = parameters_of(tool);
    snprintf(base, sizeof base, "/anyOf/%zu/properties/arguments", i);
    fv_status st = move_refs(parameters, base, 0);
    if (st != FV_OK) {
        json_decref(parameters);
        return st;
    }
    json_array_append_new(list,
                          json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}", "type", "object",
                                    "properties", "name", "const", name, "arguments", parameters,
                                    "required", "name", "arguments", "additionalProperties", 0));
    return FV_OK;
}

static fv_status any_of(const json_t *tools, json_t **out) {
    json_t *list = json_array();
    fv_status st = FV_OK;
    for (size_t i = 0; st == FV_OK && i < json_array_size(tools); i++)
        st = add_tool(list, json_array_get(tools, i));
    if (st == FV_OK)
        *out = json_pack("{s:o}", "anyOf", list);
    else
        json_decref(list);
    return st;
}

const json_t *fv_api_find_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *is =
            json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (is && strcmp(is, name) == 0) return tool;
    }
    return NULL;
}

fv_status fv_api_write_json(const json_t *v, fv_arena *arena, char **out) {
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    fv_status st = text ? fv_arena_strndup(arena, text, strlen(text), out)
                        : FV_FAIL(FV_ENOMEM, "out of memory for tools");
    free(text);
    return st;
}

/* ---- strict functions -------------------------------------------------------------------- */

static bool is_strict(const json_t *tool) {
    return json_is_true(json_object_get(json_object_get(tool, "function"), "strict"));
}

bool fv_api_any_strict(const json_t *tools) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(tools); i++) any |= is_strict(json_array_get(tools, i));
    return any;
}

/* ---- calls that must be made ------------------------------------------------------------- */

fv_status fv_api_tool_schema(const json_t *tools, const char *name, fv_arena *arena, char **out) {
    json_t *schema = NULL;
    if (name)
        schema = parameters_of(fv_api_find_tool(tools, name));
    else
        FV_TRY(any_of(tools, &schema));
    fv_status st = fv_api_write_json(schema, arena, out);
    json_decref(schema);
    return st;
}
