/* gateway/choice.c: answers with tool calls and reasoning, streamed and whole, and what of a request's
 * tools reaches the worker. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#include "tests/support/gateway_rig.h"

static gateway_rig rig;
static gateway_client c;

static void end(void) { gateway_rig_close(&rig); }

TestSuite(gateway_tools, .fini = end, .timeout = 240);

#define CHAT "/v1/chat/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":99"
#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define TOOLS "\"tools\":[" TOOL("look") "," TOOL("wait") "]"

static const char *const two_calls[] = {"I lo",
                                        "ok.\n<tool",
                                        "_call>{\"name\": \"lo",
                                        "ok\", ",
                                        "\"arguments\": {\"x\": \"\xC3\xA9\"}}</tool_call>",
                                        "\n<tool_call>{\"name\":\"wait\"}</tool_call>",
                                        NULL};
static const char *const thought[] = {"Hm", "m.\n</th", "ink>", "\n\nRed.", NULL};

static void open_with(const char *tool_parser, const char *reasoning_parser,
                      const char *const *script) {
    rig.router.p.tool_parser = rig.router.d.tool_parser = tool_parser;
    rig.router.p.reasoning_parser = rig.router.d.reasoning_parser = reasoning_parser;
    rig.router.p.script = rig.router.d.script = script;
    gateway_rig_open(&rig, &(fv_gateway_options){0});
}

static json_t *body_of(const char *got) {
    const char *at = strstr(got, "\r\n\r\n");
    json_t *json = at ? json_loads(at + 4, 0, NULL) : NULL;
    cr_assert(json, "%s", got);
    return json;
}

static void ask(const char *body) { gateway_ask(&c, &rig, "POST", CHAT, "", body); }

static const char *text_at(const json_t *json, const char *key) {
    return json_string_value(json_object_get(json, key));
}

/* Compares a call of a list; takes nothing. */
static void expect_call(const json_t *calls, size_t i, const char *name, const char *arguments) {
    const json_t *call = json_array_get(calls, i), *f = json_object_get(call, "function");
    cr_assert_str_eq(text_at(call, "type"), "function");
    cr_assert_eq(strlen(text_at(call, "id")), 29);
    cr_assert_str_eq(text_at(f, "name"), name);
    cr_assert_str_eq(text_at(f, "arguments"), arguments);
}

static json_t *whole(const char *body, const char *finish) {
    ask(body);
    json_t *json = body_of(c.got), *choice = json_array_get(json_object_get(json, "choices"), 0);
    cr_assert_str_eq(text_at(choice, "finish_reason"), finish, "%s", c.got);
    json_t *message = json_incref(json_object_get(choice, "message"));
    json_decref(json);
    return message;
}

Test(gateway_tools, a_whole_answer_has_calls) {
    open_with("hermes", NULL, two_calls);
    json_t *m = whole("{" HELLO "," TOOLS "}", "tool_calls");
    const json_t *calls = json_object_get(m, "tool_calls");
    cr_assert_str_eq(text_at(m, "content"), "I look.");
    cr_assert_eq(json_array_size(calls), 2);
    expect_call(calls, 0, "look", "{\"x\":\"\xC3\xA9\"}");
    expect_call(calls, 1, "wait", "{}");
    json_decref(m);
    cr_assert(strstr(rig.router.p.variables, "{\"tools\":[{\"type\":\"function\""), "%s",
              rig.router.p.variables);
    cr_assert(!rig.router.p.special_tokens);
}

Test(gateway_tools, one_call_where_they_are_not_parallel) {
    open_with("hermes", NULL, two_calls);
    json_t *m = whole("{" HELLO "," TOOLS ",\"parallel_tool_calls\":false}", "tool_calls");
    cr_assert_eq(json_array_size(json_object_get(m, "tool_calls")), 1);
    json_decref(m);
}

Test(gateway_tools, calls_of_others_and_without_tools_are_text) {
    open_with("hermes", NULL, two_calls);
    static const char *const bodies[] = {
        "{" HELLO "}", "{" HELLO "," TOOLS ",\"tool_choice\":\"none\"}",
        "{" HELLO ",\"tools\":[" TOOL("other") "]}", "{" HELLO ",\"tools\":[]}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        json_t *m = whole(bodies[i], "stop");
        cr_assert(strstr(text_at(m, "content"), "<tool_call>{\"name\":\"wait\"}</tool_call>"));
        cr_assert_null(json_object_get(m, "tool_calls"));
        cr_assert_eq(strstr(rig.router.p.variables, "tools") != NULL, i == 2);
        json_decref(m);
    }
}

Test(gateway_tools, a_model_without_a_known_form_answers_with_text) {
    open_with(NULL, NULL, two_calls);
    json_decref(whole("{" HELLO "," TOOLS "}", "stop"));
    cr_assert(strstr(rig.router.p.variables, "\"tools\""));
}

Test(gateway_tools, a_stream_has_deltas_of_calls) {
    open_with("hermes", NULL, two_calls);
    ask("{" HELLO "," TOOLS ",\"stream\":true}");
    static const char *const parts[] = {
        "\"delta\":{\"content\":\"I lo\"}",
        "\"delta\":{\"content\":\"ok.\"}",
        "\"tool_calls\":[{\"index\":0,\"id\":\"call_",
        "\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"\"}}]",
        "[{\"index\":0,\"function\":{\"arguments\":\"{\\\"x\\\":\\\"\xC3\xA9\\\"}\"}}]",
        "\"tool_calls\":[{\"index\":1,\"id\":\"call_",
        "\"type\":\"function\",\"function\":{\"name\":\"wait\",\"arguments\":\"\"}}]",
        "[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]",
        "\"finish_reason\":\"tool_calls\"",
        "data: [DONE]"};
    const char *at = c.got;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        cr_assert(at, "%s is not in %s", parts[i], c.got);
    }
}

Test(gateway_tools, special_marks_are_asked_for) {
    static const char *const script[] = {"[TOOL_CALLS]", "look", "[ARGS]", "{\"a\":1}", NULL};
    open_with("mistral", NULL, script);
    json_t *m = whole("{" HELLO "," TOOLS "}", "tool_calls");
    const json_t *call = json_array_get(json_object_get(m, "tool_calls"), 0);
    cr_assert_eq(strlen(text_at(call, "id")), 9);
    cr_assert(json_is_null(json_object_get(m, "content")));
    cr_assert(rig.router.p.special_tokens);
    json_decref(m);
    json_decref(whole("{" HELLO "," TOOLS ",\"skip_special_tokens\":true}", "tool_calls"));
    cr_assert(!rig.router.p.special_tokens);
}

Test(gateway_tools, reasoning_is_apart) {
    rig.router.p.thinks = true;
    open_with(NULL, "think", thought);
    ask("{" HELLO "}");
    json_t *json = body_of(c.got),
           *m = json_object_get(json_array_get(json_object_get(json, "choices"), 0), "message");
    cr_assert_str_eq(text_at(m, "reasoning_content"), "Hmm.");
    cr_assert_str_eq(text_at(m, "reasoning"), "Hmm.");
    cr_assert_str_eq(text_at(m, "content"), "Red.");
    const json_t *details =
        json_object_get(json_object_get(json, "usage"), "completion_tokens_details");
    cr_assert_eq(json_integer_value(json_object_get(details, "reasoning_tokens")), 3);
    json_decref(json);
    ask("{" HELLO ",\"stream\":true}");
    cr_assert(strstr(c.got, "\"delta\":{\"reasoning_content\":\"Hm\",\"reasoning\":\"Hm\"}"), "%s",
              c.got);
    cr_assert(strstr(c.got, "\"delta\":{\"content\":\"Red.\"}"), "%s", c.got);
    cr_assert_null(strstr(c.got, "think>"));
}

Test(gateway_tools, without_it_answers_are_text) {
    open_with(NULL, "think", thought);
    json_t *m = whole("{" HELLO "}", "stop");
    cr_assert_str_eq(text_at(m, "content"), "Hmm.\n</think>\n\nRed.");
    cr_assert_null(json_object_get(m, "reasoning_content"));
    json_decref(m);
}

static const char *const forced[] = {"Which?</thi", "nk>\n\n{\"name\": \"wait\", ",
                                     "\"arguments\": {\"s\": 1}}", NULL};
static const char *const named[] = {"{\"a\":", " [1]}", NULL};

Test(gateway_tools, a_call_can_be_required) {
    rig.router.p.thinks = true; /* a form begins behind the reasoning */
    open_with("mistral", "think", forced);
    json_t *m =
        whole("{" HELLO "," TOOLS ",\"tool_choice\":\"required\",\"response_format\":{\"type\":"
              "\"json_object\"}}",
              "tool_calls");
    expect_call(json_object_get(m, "tool_calls"), 0, "wait", "{\"s\":1}");
    cr_assert_str_eq(text_at(m, "reasoning_content"), "Which?");
    json_decref(m);
    cr_assert_str_eq(rig.router.p.reasoning, "think");
    cr_assert_str_eq(rig.router.d.reasoning, "think");
    cr_assert(rig.router.d.inside);
    cr_assert_str_eq(
        rig.router.p.schema,
        "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"look\"},"
        "\"arguments\":"
        "{\"type\":\"object\"}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":"
        "false},"
        "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"wait\"},\"arguments\":{"
        "\"type\":"
        "\"object\"}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}]}");
}

Test(gateway_tools, a_function_can_be_named) {
    open_with(NULL, NULL, named);
    json_t *m = whole(
        "{" HELLO ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
        "\"look\"}},\"tools\":[" TOOL(
            "wait") ",{\"type\":\"function\",\"function\":{"
                    "\"name\":\"look\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
                    "\"type\":\"array\"}}}}}]}",
        "tool_calls");
    expect_call(json_object_get(m, "tool_calls"), 0, "look", "{\"a\":[1]}");
    json_decref(m);
    cr_assert_str_eq(rig.router.p.schema,
                     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\"}}}");
}

Test(gateway_tools, strict_functions_have_their_arguments_held) {
    open_with("hermes", "think", two_calls);
    json_decref(whole("{" HELLO
                      ",\"tools\":[" TOOL("look") ",{\"type\":\"function\",\"function\":{\"name\":"
                                                  "\"wait\",\"strict\":true,\"parameters\":{"
                                                  "\"type\":\"object\",\"properties\":{}}}}]}",
                      "tool_calls"));
    cr_assert(strstr(rig.router.p.schema, "\"<tool_call>\\n{\\\"name\\\": \\\"wait\\\", "), "%s",
              rig.router.p.schema);
    cr_assert_str_eq(rig.router.p.reasoning, "think", "it thinks first");
    json_decref(whole("{" HELLO "," TOOLS "}", "tool_calls"));
    cr_assert_str_empty(rig.router.p.schema);
}

static void refused(const char *tools, const char *param, const char *why) {
    char body[1024];
    snprintf(body, sizeof body, "{" HELLO ",%s}", tools);
    ask(body);
    json_t *json = body_of(c.got), *e = json_object_get(json, "error");
    cr_assert(strstr(c.got, "HTTP/1.1 400") && text_at(e, "param"), "%s", c.got);
    cr_assert_str_eq(text_at(e, "param"), param);
    cr_assert(strstr(text_at(e, "message"), why), "%s", c.got);
    json_decref(json);
}

Test(gateway_tools, wrong_tools_are_refused) {
    open_with("hermes", NULL, two_calls);
    refused("\"tools\":{}", "tools", "must be a list");
    refused("\"tools\":[1]", "tools", "tool 0: a tool must be");
    refused("\"tools\":[{\"type\":\"web_search\"}]", "tools", "other types are not supported");
    refused("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "tools",
            "letters, digits");
    refused("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":1}}]",
            "tools", "must be a JSON schema");
    refused("\"tool_choice\":\"always\"", "tool_choice", "must be \"auto\", \"none\"");
    refused("\"tool_choice\":\"required\"", "tool_choice", "no tools to call");
    refused("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}," TOOLS,
            "tool_choice", "no tool has the name 'x'");
    refused("\"tool_choice\":{\"type\":\"allowed_tools\"}," TOOLS, "tool_choice", "must be");
}
