/* gateway/response.h: the Responses API: shapes, the order of events, what is kept and for whom. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gateway/response.h"
#include "tests/support/gateway_rig.h"

static gateway_rig rig;
static gateway_client c;

static void end(void) { gateway_rig_close(&rig); }

TestSuite(gateway_responses, .fini = end, .timeout = 240);

#define PATH "/v1/responses"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"name\":\"look\",\"parameters\":{\"type\":\"object\"}}]"

static const char *const plain[] = {"It is", " red.", NULL};
static const char *const all[] = {"<think>",
                                  "hm</think>",
                                  "I look.",
                                  "<tool_call>{\"name\":\"look\"",
                                  ",\"arguments\":{\"x\":1}}</tool_call>",
                                  NULL};

static void open_with(const char *const *script, fv_response_limits limits) {
    rig.router.p.tool_parser = rig.router.d.tool_parser = "hermes";
    rig.router.p.reasoning_parser = rig.router.d.reasoning_parser = "think";
    rig.router.p.script = rig.router.d.script = script;
    if (!limits.bytes_owner) limits.bytes_owner = limits.bytes_all = 1 << 20;
    if (!limits.ms) limits.ms = 3600000;
    gateway_rig_open(&rig, &(fv_gateway_options){.responses = limits});
}

static void open_keeping(const char *const *script) {
    open_with(script, (fv_response_limits){.n_owner = 10});
}

/* Gives the body of the answer, which must have this status. */
static json_t *ask_as(const char *lines, const char *method, const char *path, const char *body,
                      int status) {
    char begins[32];
    snprintf(begins, sizeof begins, "HTTP/1.1 %d", status);
    gateway_ask(&c, &rig, method, path, lines, body);
    cr_assert(strncmp(c.got, begins, strlen(begins)) == 0, "%s %s: %s", method, path, c.got);
    json_t *json = json_loads(strstr(c.got, "\r\n\r\n") + 4, 0, NULL);
    cr_assert(json, "%s", c.got);
    return json;
}

static json_t *ask(const char *method, const char *path, const char *body, int status) {
    return ask_as("", method, path, body, status);
}

static const char *text_at(const json_t *json, const char *key) {
    const char *text = json_string_value(json_object_get(json, key));
    cr_assert(text, "%s: %s", key, c.got);
    return text;
}

static const json_t *item(const json_t *response, size_t i) {
    return json_array_get(json_object_get(response, "output"), i);
}

static const char *content(const json_t *of) {
    return text_at(json_array_get(json_object_get(of, "content"), 0), "text");
}

static const char *path_of(const char *id, const char *tail) {
    static char path[256];
    snprintf(path, sizeof path, PATH "/%s%s", id, tail);
    return path;
}

/* Makes a response; its id stays valid until the next one. */
static const char *make(const char *body) {
    static char id[128];
    json_t *json = ask("POST", PATH, body, 200);
    snprintf(id, sizeof id, "%s", text_at(json, "id"));
    json_decref(json);
    return id;
}

Test(gateway_responses, a_text_is_answered_with_a_message) {
    open_keeping(plain);
    json_t *r = ask("POST", PATH,
                    "{\"input\":\"hello\",\"instructions\":\"be brief\",\"metadata\":{\"a\":\"b\"},"
                    "\"temperature\":0.5,\"max_output_tokens\":50}",
                    200);
    cr_assert_str_eq(text_at(r, "object"), "response");
    cr_assert_str_eq(text_at(r, "status"), "completed");
    cr_assert_str_eq(text_at(r, "model"), "fake");
    cr_assert_str_eq(text_at(item(r, 0), "type"), "message");
    cr_assert_str_eq(text_at(item(r, 0), "role"), "assistant");
    cr_assert_str_eq(content(item(r, 0)), "It is red.");
    cr_assert_str_eq(text_at(json_object_get(r, "metadata"), "a"), "b");
    cr_assert(json_is_null(json_object_get(r, "error")) &&
              json_is_true(json_object_get(r, "store")));
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(r, "usage"), "output_tokens")),
                 2);
    cr_assert_str_eq(rig.router.p.turns, "system: be brief\nuser: hello\n");
    json_decref(r);
}

Test(gateway_responses, a_cut_answer_is_incomplete) {
    open_keeping(NULL);
    json_t *r = ask("POST", PATH, "{\"input\":\"hello\",\"max_output_tokens\":3}", 200);
    cr_assert_str_eq(text_at(r, "status"), "incomplete");
    cr_assert_str_eq(text_at(json_object_get(r, "incomplete_details"), "reason"),
                     "max_output_tokens");
    cr_assert_str_eq(text_at(item(r, 0), "status"), "incomplete");
    json_decref(r);
}

Test(gateway_responses, reasoning_text_and_calls_are_items) {
    open_keeping(all);
    json_t *r = ask("POST", PATH, "{\"input\":\"hello\"," TOOLS "}", 200);
    cr_assert_eq(json_array_size(json_object_get(r, "output")), 3);
    cr_assert_str_eq(text_at(item(r, 0), "type"), "reasoning");
    cr_assert_str_eq(content(item(r, 0)), "hm");
    cr_assert_str_eq(content(item(r, 1)), "I look.");
    cr_assert_str_eq(text_at(item(r, 2), "type"), "function_call");
    cr_assert_str_eq(text_at(item(r, 2), "name"), "look");
    cr_assert_str_eq(text_at(item(r, 2), "arguments"), "{\"x\":1}");
    cr_assert_str_eq(text_at(json_array_get(json_object_get(r, "tools"), 0), "name"), "look");
    cr_assert(strstr(rig.router.p.variables,
                     "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\""),
              "%s", rig.router.p.variables);
    json_decref(r);
}

Test(gateway_responses, events_come_in_order) {
    static const char *const events[] = {"response.created",
                                         "response.in_progress",
                                         "response.output_item.added",
                                         "response.content_part.added",
                                         "response.reasoning_text.delta",
                                         "response.reasoning_text.done",
                                         "response.content_part.done",
                                         "response.output_item.done",
                                         "response.output_item.added",
                                         "response.content_part.added",
                                         "response.output_text.delta",
                                         "response.output_text.done",
                                         "response.content_part.done",
                                         "response.output_item.done",
                                         "response.output_item.added",
                                         "response.function_call_arguments.delta",
                                         "response.function_call_arguments.done",
                                         "response.output_item.done",
                                         "response.completed"};
    enum { N = sizeof events / sizeof *events };
    char number[64];
    open_keeping(all);
    gateway_ask(&c, &rig, "POST", PATH, "", "{\"input\":\"hello\",\"stream\":true," TOOLS "}");
    const char *at = c.got;
    for (int i = 0; i < N; i++) {
        at = strstr(at, "event: ");
        cr_assert(at && strncmp(at + 7, events[i], strlen(events[i])) == 0 &&
                      at[7 + strlen(events[i])] == '\n',
                  "%d is not %s: %.100s", i, events[i], at);
        at += 7;
        snprintf(number, sizeof number, "\"sequence_number\":%d}", i);
        const char *found = strstr(at, number);
        cr_assert(found && found < strstr(at, "\n\n"), "%s: %s", number, at);
    }
    cr_assert_null(strstr(at, "event: "));
    cr_assert_null(strstr(c.got, "[DONE]"));
}

Test(gateway_responses, one_continues_another) {
    char first[128], second[128], body[512];
    open_keeping(all);
    strcpy(first, make("{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
                       "\"text\":\"what?\"},{\"type\":\"input_image\",\"image_url\":"
                       "\"data:image/"
                       "png;base64,"
                       "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKm"
                       "MIQAAAABJRU5ErkJggg==\"}]}]," TOOLS "}"));
    snprintf(body, sizeof body,
             "{\"previous_response_id\":\"%s\",\"instructions\":\"now\",\"input\":[{\"type\":"
             "\"function_call_output\",\"call_id\":\"1\",\"output\":\"a cat\"}]}",
             first);
    strcpy(second, make(body));
    cr_assert_eq(rig.router.p.n_images, 1);
    cr_assert(strstr(rig.router.p.turns, "system: now\nuser: {what?}{<image>}\nassistant: I look. "
                                         "{\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":"
                                         "\"call_"),
              "%s", rig.router.p.turns);
    cr_assert(strstr(rig.router.p.turns, "\ntool: a cat {\"tool_call_id\":\"1\"}\n"), "%s",
              rig.router.p.turns);
    json_decref(ask("DELETE", path_of(first, ""), NULL, 200));
    json_decref(ask("GET", path_of(first, ""), NULL, 404));
    snprintf(body, sizeof body, "{\"previous_response_id\":\"%s\",\"input\":\"so?\"}", second);
    make(body);
    cr_assert(strstr(rig.router.p.turns, "user: {what?}{<image>}\n") &&
                  strstr(rig.router.p.turns, "\nuser: so?\n"),
              "%s", rig.router.p.turns);
    json_t *e = ask("POST", PATH, "{\"previous_response_id\":\"resp_0\",\"input\":\"so?\"}", 404);
    cr_assert_str_eq(text_at(json_object_get(e, "error"), "param"), "previous_response_id");
    json_decref(e);
}

Test(gateway_responses, items_of_the_input_become_turns) {
    open_keeping(plain);
    make(
        "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":\"reasoning_"
        "text\","
        "\"text\":\"why\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{"
        "\"type\":"
        "\"output_text\",\"text\":\"b\",\"annotations\":[]}]},"
        "{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call\",\"call_id\":\"2\",\"name\":\"g\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"c\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"2\",\"output\":[{\"type\":\"input_text\","
        "\"text\":\"d\"}]}]}");
    cr_assert_str_eq(
        rig.router.p.turns,
        "user: a\n"
        "assistant: {b} {\"reasoning_content\":\"why\",\"tool_calls\":[{\"id\":\"1\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"2\",\"type\":"
        "\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}\n"
        "tool: c {\"tool_call_id\":\"1\"}\n"
        "tool: {d} {\"tool_call_id\":\"2\"}\n");
}

Test(gateway_responses, those_kept_are_shown_with_their_input) {
    open_keeping(plain);
    const char *id =
        make("{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
             "\"content\":\"b\"},{\"role\":\"user\",\"content\":\"c\"}]}");
    json_t *r = ask("GET", path_of(id, ""), NULL, 200);
    cr_assert_str_eq(content(item(r, 0)), "It is red.");
    json_decref(r);
    r = ask("GET", path_of(id, "/input_items?limit=2&order=asc"), NULL, 200);
    const json_t *data = json_object_get(r, "data");
    cr_assert(json_array_size(data) == 2 && json_is_true(json_object_get(r, "has_more")));
    cr_assert_str_eq(content(json_array_get(data, 0)), "a");
    cr_assert_str_eq(text_at(r, "last_id"), text_at(json_array_get(data, 1), "id"));
    char after[512];
    snprintf(after, sizeof after, "/input_items?order=asc&after=%s", text_at(r, "last_id"));
    json_decref(r);
    r = ask("GET", path_of(id, after), NULL, 200);
    cr_assert_eq(json_array_size(json_object_get(r, "data")), 1);
    json_decref(r);
    json_decref(ask("GET", path_of(id, "/input_items?limit=0"), NULL, 400));
    json_decref(ask("POST", path_of(id, "/cancel"), "{}", 400));
    json_decref(ask("POST", path_of("resp_x", "/cancel"), "{}", 404));
    json_decref(ask("PUT", path_of(id, ""), NULL, 405));
}

Test(gateway_responses, they_are_their_owners) {
    open_keeping(plain);
    json_t *r = ask_as("Authorization: Bearer a\r\n", "POST", PATH, "{\"input\":\"x\"}", 200);
    const char *path = path_of(text_at(r, "id"), "");
    json_decref(ask_as("Authorization: Bearer a\r\n", "GET", path, NULL, 200));
    json_decref(ask_as("Authorization: Bearer b\r\n", "GET", path, NULL, 404));
    json_decref(ask_as("Authorization: Bearer b\r\n", "DELETE", path, NULL, 404));
    json_decref(ask("GET", path, NULL, 404));
    json_decref(r);
}

Test(gateway_responses, limits_end_the_oldest) {
    char first[128], second[128];
    open_with(plain, (fv_response_limits){.n_owner = 2});
    strcpy(first, make("{\"input\":\"1\"}"));
    strcpy(second, make("{\"input\":\"2\"}"));
    make("{\"input\":\"not kept\",\"store\":false}");
    json_decref(ask("GET", path_of(first, ""), NULL, 200));
    make("{\"input\":\"3\"}");
    json_decref(ask("GET", path_of(first, ""), NULL, 404));
    json_decref(ask("GET", path_of(second, ""), NULL, 200));
}

Test(gateway_responses, bytes_and_time_are_limited_too) {
    static char body[20000];
    open_with(plain, (fv_response_limits){
                         .n_owner = 9, .bytes_owner = 16000, .bytes_all = 16000, .ms = 200});
    const char *id = make("{\"input\":\"1\"}");
    router_rig_sleep(&rig.router, 300);
    json_decref(ask("GET", path_of(id, ""), NULL, 404));
    snprintf(body, sizeof body, "{\"input\":\"%017000d\"}", 0);
    json_t *r = ask("POST", PATH, body, 200);
    cr_assert(json_is_false(json_object_get(r, "store")));
    json_decref(r);
}

Test(gateway_responses, one_that_runs_can_be_cancelled) {
    static gateway_client other;
    char id[128];
    open_keeping(NULL);
    rig.router.d.step = FAKE_TOKENS;
    rig.router.d.n_say = 1;
    gateway_send(&c, &rig, "POST", PATH, "", "{\"input\":\"x\",\"stream\":true}");
    gateway_await(&c, " one");
    const char *at = strstr(c.got, "\"id\":\"resp_");
    snprintf(id, sizeof id, "%.*s", (int)strcspn(at + 6, "\""), at + 6);
    gateway_ask(&other, &rig, "POST", path_of(id, "/cancel"), "", "{}");
    cr_assert(strstr(other.got, "HTTP/1.1 200") && strstr(other.got, "\"status\":\"cancelled\""),
              "%s", other.got);
    gateway_await(&c, "event: response.incomplete");
    cr_assert(strstr(c.got, "zero one"), "%s", c.got);
    gateway_leave(&c);
    gateway_ask(&other, &rig, "GET", path_of(id, ""), "", NULL);
    cr_assert(strstr(other.got, "\"status\":\"cancelled\""), "%s", other.got);
}

Test(gateway_responses, a_stream_that_fails_says_so) {
    open_keeping(NULL);
    rig.router.d.step = FAKE_TOKENS;
    rig.router.d.n_say = 1;
    rig.router.d.fail = FV_EINVAL;
    rig.router.d.origin = FV_ORIGIN_CALLER;
    gateway_ask(&c, &rig, "POST", PATH, "", "{\"input\":\"x\",\"stream\":true}");
    cr_assert(strstr(c.got, "event: response.failed\n") && strstr(c.got, "\"status\":\"failed\""),
              "%s", c.got);
}

Test(gateway_responses, a_form_and_a_choice_of_tools_come_back) {
    open_keeping(plain);
    json_t *r =
        ask("POST", PATH,
            "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
            "\"schema\":{\"type\":\"object\"}}}}",
            200);
    cr_assert_str_eq(rig.router.p.schema, "{\"type\":\"object\"}");
    cr_assert_str_eq(text_at(json_object_get(json_object_get(r, "text"), "format"), "name"), "n");
    json_decref(r);
    r = ask("POST", PATH,
            "{\"input\":\"x\",\"tool_choice\":{\"type\":\"function\",\"name\":\"look\"}," TOOLS "}",
            200);
    cr_assert_str_eq(text_at(json_object_get(r, "tool_choice"), "name"), "look");
    json_decref(r);
}

static void refused(const char *body, const char *param, const char *why) {
    json_t *json = ask("POST", PATH, body, 400), *e = json_object_get(json, "error");
    cr_assert_str_eq(text_at(e, "param"), param);
    cr_assert(strstr(text_at(e, "message"), why), "%s", c.got);
    json_decref(json);
}

Test(gateway_responses, mistakes_name_their_field) {
    open_keeping(plain);
    refused("{}", "input", "required");
    refused("{\"input\":1}", "input", "a text or a list");
    refused("{\"input\":[{\"type\":\"web_search_call\"}]}", "input[0].type", "web_search_call");
    refused("{\"input\":[{\"content\":\"x\"}]}", "input[0]", "no role");
    refused("{\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]}", "input[0].call_id",
            "required");
    refused("{\"input\":\"x\",\"background\":true}", "background", "must be false");
    refused("{\"input\":\"x\",\"metadata\":{\"a\":1}}", "metadata", "strings");
    refused("{\"input\":\"x\",\"truncation\":\"some\"}", "truncation", "disabled");
    refused("{\"input\":\"x\",\"tools\":[{\"type\":\"file_search\"}]}", "tools", "not supported");
    refused("{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"xml\"}}}", "text.format",
            "its type must be");
    refused("{\"input\":\"x\",\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}",
            "tool_choice", "no tools");
    refused("{\"input\":\"x\",\"conversation\":\"c\"}", "conversation", "previous_response_id");
    refused("{\"input\":\"x\",\"top_logprobs\":21}", "top_logprobs", "0 to 20");
    refused("{\"input\":\"x\",\"include\":\"all\"}", "include", "a list");
    refused("{\"input\":\"x\",\"include\":[1]}", "include[0]", "a string");
}

/* ---- log-probabilities ------------------------------------------------------------------- */

#define INCLUDE "\"include\":[\"message.output_text.logprobs\"]"

/* Writes the log-probabilities of a list's entries, as "-1 -2 ". The fake worker's token i has -i. */
static const char *entries(const json_t *list) {
    static char text[256];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(list); i++)
        n += (size_t)snprintf(
            text + n, sizeof text - n, "%.0f ",
            json_number_value(json_object_get(json_array_get(list, i), "logprob")) + 0.0);
    return text;
}

static const char *entries_of_item(const json_t *of) {
    const json_t *part = json_array_get(json_object_get(of, "content"), 0);
    return entries(json_object_get(part, "logprobs"));
}

Test(gateway_responses, log_probabilities_are_those_of_messages) {
    open_keeping(all);
    json_t *r = ask("POST", PATH, "{\"input\":\"hello\"," INCLUDE "," TOOLS "}", 200);
    cr_assert_str_eq(content(item(r, 1)), "I look.");
    cr_assert_str_eq(entries_of_item(item(r, 1)), "-2 ");
    cr_assert_null(
        json_object_get(json_array_get(json_object_get(item(r, 0), "content"), 0), "logprobs"));
    json_t *kept = ask("GET", path_of(text_at(r, "id"), ""), NULL, 200);
    cr_assert(json_equal(kept, r));
    json_decref(kept);
    json_decref(r);
    r = ask("POST", PATH, "{\"input\":\"hello\"," TOOLS "}", 200);
    cr_assert_str_eq(entries_of_item(item(r, 1)), "");
    json_decref(r);
}

/* Text that might begin a call is held back: the entries of its tokens come with it. A call's tokens, and the one
 * that ends it, have none. */
Test(gateway_responses, log_probabilities_come_with_their_text) {
    static const char *const script[] = {
        "A", " <", "tool", "box", "<tool_call>{\"name\":\"look\",", "\"arguments\":{}}</tool_call>",
        "B", NULL};
    open_keeping(script);
    json_t *r = ask("POST", PATH, "{\"input\":\"hello\",\"top_logprobs\":2," TOOLS "}", 200);
    cr_assert_str_eq(content(item(r, 0)), "A <toolbox");
    cr_assert_str_eq(entries_of_item(item(r, 0)), "0 -1 -2 -3 ");
    cr_assert_str_eq(text_at(item(r, 1), "type"), "function_call");
    cr_assert_str_eq(content(item(r, 2)), "B");
    cr_assert_str_eq(entries_of_item(item(r, 2)), "-6 ");
    cr_assert_eq(json_integer_value(json_object_get(r, "top_logprobs")), 2);
    json_decref(r);
}

Test(gateway_responses, deltas_have_the_log_probabilities_of_the_whole) {
    static const char *const script[] = {"A", " <", "tool", "box", NULL};
    open_keeping(script);
    gateway_ask(&c, &rig, "POST", PATH, "",
                "{\"input\":\"hello\",\"stream\":true," INCLUDE "," TOOLS "}");
    json_t *joined = json_array(), *done = NULL, *part = NULL;
    for (char *at = c.got; (at = strstr(at, "data: ")); at++) {
        char *end_of_line = strchr(at, '\n');
        *end_of_line = '\0';
        json_t *e = json_loads(at + 6, 0, NULL);
        const char *type = json_string_value(json_object_get(e, "type"));
        cr_assert(type, "%s", at);
        if (strcmp(type, "response.output_text.delta") == 0)
            json_array_extend(joined, json_object_get(e, "logprobs"));
        if (strcmp(type, "response.output_text.done") == 0)
            done = json_incref(json_object_get(e, "logprobs"));
        if (strcmp(type, "response.content_part.done") == 0)
            part = json_incref(json_object_get(json_object_get(e, "part"), "logprobs"));
        json_decref(e);
        *end_of_line = '\n';
    }
    cr_assert_str_eq(entries(joined), "0 -1 -2 -3 ", "%s", c.got);
    cr_assert(json_equal(joined, done) && json_equal(joined, part), "%s", c.got);
    json_decref(joined);
    json_decref(done);
    json_decref(part);
}

Test(gateway_responses, log_probabilities_are_limited) {
    open_keeping(plain);
    fv_responding r = {0};
    json_t *one =
        json_pack("{s:[{s:f, s:[{}, {}, {}]}]}", "content", "logprob", -1.0, "top_logprobs");
    for (int32_t i = 0; i < 8192; i++) {
        cr_assert_eq(fv_responding_hold_logprobs(&r, one), FV_OK, "%d", i);
        if (i % 2) json_decref(fv_responding_take_logprobs(&r));
    }
    cr_assert_eq(json_array_size(r.logprobs), 8192);
    cr_assert_eq(fv_responding_hold_logprobs(&r, one), FV_ENOMEM);
    cr_assert(strstr(fv_last_error(), "top_logprobs"), "%s", fv_last_error());
    fv_responding_drop_logprobs(&r);
    json_decref(r.logprobs);
    json_decref(one);
}
