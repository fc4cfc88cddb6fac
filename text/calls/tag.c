/* The format (grammar/tag_format.c) of answers in which calls, and the arguments of strict functions, are as the tools
 * say: free text, in which the form's mark begins a call. Any thread. */
#include <string.h>

#include "text/calls/internal.h"

/* ---- tools ------------------------------------------------------------------------------- */

static const json_t *function_of(const json_t *tool) { return json_object_get(tool, "function"); }

static const char *name_of(const json_t *tool) {
    const char *name = json_string_value(json_object_get(function_of(tool), "name"));
    return name ? name : "";
}

static bool is_strict(const json_t *tool) {
    return json_is_true(json_object_get(function_of(tool), "strict"));
}

/* A function that is not strict, or has no parameters, has any object. */
static json_t *schema_of(const json_t *tool) {
    json_t *p = json_object_get(function_of(tool), "parameters");
    return is_strict(tool) && json_is_object(p) ? json_incref(p)
                                                : json_pack("{s:s}", "type", "object");
}

/* ---- formats ------------------------------------------------------------------------------ */

static json_t *constant(const char *text) {
    return json_pack("{s:s, s:s}", "type", "const_string", "value", text);
}

static json_t *token(const char *text) {
    return json_pack("{s:s, s:s}", "type", "token", "token", text);
}

static json_t *schema(const json_t *tool) {
    return json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", schema_of(tool));
}

/* Takes begin and content. */
static json_t *tag(json_t *begin, json_t *content, const char *end) {
    return json_pack("{s:s, s:o, s:o, s:s}", "type", "tag", "begin", begin, "content", content,
                     "end", end);
}

/* Takes the list. */
static json_t *list_of(const char *type, const char *key, json_t *list) {
    return json_pack("{s:s, s:o}", "type", type, key, list);
}

/* Takes the tags. */
static json_t *triggered(const json_t *triggers, json_t *tags) {
    return json_pack("{s:s, s:O, s:o}", "type", "triggered_tags", "triggers", triggers, "tags",
                     tags);
}

/* A tag for each tool: BEFORE name BETWEEN arguments AFTER. Names have no character that JSON escapes. */
static json_t *json_tags(const json_t *tools, const char *before, const char *between,
                         const char *after) {
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        json_t *begin = json_pack("s++", before, name_of(tool), between);
        json_array_append_new(list, tag(begin, schema(tool), after));
    }
    return list;
}

/* Describes one or more calls as JSON. */
static json_t *calls(const json_t *tools, const char *key, const char *separator) {
    char between[64] = "\", \"";
    strcat(strcat(between, key), "\": ");
    return json_pack("{s:s, s:b, s:s, s:o}", "type", "tags_with_separator", "at_least_one", 1,
                     "separator", separator, "tags",
                     json_tags(tools, "{\"name\": \"", between, "}"));
}

/* ---- the forms ---------------------------------------------------------------------------- */

json_t *fv_tag_hermes(const json_t *tools) {
    json_t *triggers = json_pack("[s]", "<tool_call>");
    json_t *format = triggered(triggers, json_tags(tools, "<tool_call>\n{\"name\": \"",
                                                   "\", \"arguments\": ", "}\n</tool_call>"));
    json_decref(triggers);
    return format;
}

json_t *fv_tag_qwen3_xml(const json_t *tools) {
    static const char end[] = "</function>\n</tool_call>";
    json_t *list = json_array(), *triggers = json_pack("[s, s]", "<tool_call>", "<function=");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        json_t *begin = json_pack("s++", "<tool_call>\n<function=", name_of(tool), ">\n");
        json_t *content = is_strict(tool) ? json_pack("{s:s, s:o}", "type", "qwen_xml_parameter",
                                                      "json_schema", schema_of(tool))
                                          : json_pack("{s:s}", "type", "any_text");
        json_array_append_new(list, tag(begin, content, end));
    }
    json_t *format = triggered(triggers, list);
    json_decref(triggers);
    return format;
}

/* Either a list of calls, or since the tokenizer 11 NAME[ARGS]{...}. */
json_t *fv_tag_mistral(const json_t *tools) {
    json_t *ways =
        json_pack("[o]", list_of("sequence", "elements",
                                 json_pack("[o, o, o]", constant("["),
                                           calls(tools, "arguments", ", "), constant("]"))));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        json_array_append_new(ways, list_of("sequence", "elements",
                                            json_pack("[o, o, o]", constant(name_of(tool)),
                                                      token("[ARGS]"), schema(tool))));
    }
    json_t *triggers = json_pack("[s]", "[TOOL_CALLS]");
    json_t *format = triggered(
        triggers,
        json_pack("[o]", tag(token("[TOOL_CALLS]"), list_of("or", "elements", ways), "")));
    json_decref(triggers);
    return format;
}

/* A '{' at the beginning is a call too, so text begins with another character; "<" may begin the mark. */
json_t *fv_tag_llama3_json(const json_t *tools) {
    static const char first[] = "([^{<\\s]|<[^|])";
    json_t *triggers = json_pack("[s]", "<|python_tag|>");
    json_t *marked = tag(token("<|python_tag|>"), calls(tools, "parameters", "; "), "");
    json_t *rest = triggered(triggers, json_pack("[O]", marked)); /* text, and marked calls in it */
    json_t *text = list_of("sequence", "elements",
                           json_pack("[{s:s, s:s}, O]", "type", "regex", "pattern", first, rest));
    json_t *format =
        list_of("or", "elements",
                json_pack("[o, o, o, o]", constant(""), calls(tools, "parameters", "; "), text,
                          list_of("sequence", "elements", json_pack("[o, o]", marked, rest))));
    json_decref(triggers);
    return format;
}

fv_status fv_calls_form_tag(const fv_calls_form *f, const json_t *tools, json_t **out) {
    *out = NULL;
    if (!f->tag) return FV_OK;
    json_t *format = f->tag(tools);
    *out = format ? json_pack("{s:s, s:o}", "type", "structural_tag", "format", format) : NULL;
    return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for tools");
}
