/* gateway/api: messages as clients send them, and the fields that say how a chat is rendered. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/api_body.h"

static fv_arena arena;
static fv_api_request q;
static char param[FV_API_PARAM_MAX];

static void end(void) {
    fv_api_bytes_free(q.bytes);
    fv_arena_fini(&arena);
}

TestSuite(api_turns, .fini = end);

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]"
#define PNG "data:image/png;base64,iVBORw0K"
#define MEMBERS(json) "{\"messages\":[{\"role\":\"assistant\"," json "}]}"
#define PARTS(json) "{\"messages\":[{\"role\":\"user\",\"content\":[" json "]}]}"

static fv_status read_body(const char *body, bool templates, size_t piece) {
    const fv_api_reader_options opt = {
        .kind = FV_API_CHAT, .json_max = API_BODY_JSON_MAX, .chat_templates = templates};
    fv_api_bytes_free(q.bytes);
    return api_body_read(&opt, body, strlen(body), piece, &arena, &q, param);
}

/* Reads a body in pieces of several sizes. */
static const Fovea__Inference__V1__Chat *chat_of(const char *body) {
    for (size_t piece = 1; piece < 9; piece++)
        cr_assert_eq(read_body(body, true, piece), FV_OK, "%s: %s: %s", body, param,
                     fv_last_error());
    cr_assert_eq(read_body(body, true, strlen(body) + 1), FV_OK);
    return q.message.prompt->chat;
}

static void bad(const char *body, const char *field, const char *word) {
    cr_assert_eq(read_body(body, false, 3), FV_EINVAL, "%s", body);
    cr_assert_str_eq(param, field, "%s: '%s'", body, param);
    cr_assert(strstr(fv_last_error(), word), "%s: %s", body, fv_last_error());
}

/* ---- turns ------------------------------------------------------------------------------- */

Test(api_turns, roles_are_the_templates_matter) {
    const Fovea__Inference__V1__Chat *chat =
        chat_of("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\","
                "\"content\":\"b\"},{\"role\":\"system\",\"content\":\"c\"},{\"role\":\"tool\","
                "\"tool_call_id\":\"7\",\"content\":\"d\"},{\"role\":\"assistant\",\"content\":"
                "\"e\"},{\"role\":\"moderator\",\"content\":\"f\"}]}");
    cr_assert_eq(chat->n_turns, 6);
    cr_assert_str_eq(chat->turns[3]->role, "tool");
    cr_assert_str_eq(chat->turns[3]->members, "{\"tool_call_id\":\"7\"}");
    cr_assert_str_eq(chat->turns[5]->role, "moderator");
    cr_assert(!chat->turns[0]->members[0] && !chat->turns[0]->no_content);
    bad("{\"messages\":[{\"role\":7,\"content\":\"x\"}]}", "messages[0].role", "string");
    bad("{\"messages\":[{\"role\":"
        "\"123456789012345678901234567890123456789012345678901234567890123456\"}]}",
        "messages[0].role", "1..64 bytes");
}

/* A member goes to the template as the same JSON. */
Test(api_turns, other_members_are_kept_as_they_are) {
    static const char *const cases[][2] = {
        {"\"name\":\"Bob \\\"B\\\" \\n\\u0001\\u00e9\\ud83d\\ude00\"",
         "{\"name\":\"Bob \\\"B\\\" \\n\\u0001\xC3\xA9\xF0\x9F\x98\x80\"}"},
        {"\"x\":[1,-2.5,3.0,true,false,null,[],{},[[{\"a\":[]}]]],\"y\":0.0",
         "{\"x\":[1,-2.5,3.0,true,false,null,[],{},[[{\"a\":[]}]]],\"y\":0."
         "0}"},
        {"\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
         "1}\"}}]",
         "{\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
         "1}\"}}]}"},
        {"\"\":{\"\":\"\"}", "{\"\\\"\":{\"\":\"\"}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1000];
        snprintf(body, sizeof body, "{\"messages\":[{%s,\"role\":\"assistant\"}]}", cases[i][0]);
        const Fovea__Inference__V1__Chat *chat = chat_of(body);
        cr_assert(chat->turns[0]->no_content);
        cr_assert_str_eq(chat->turns[0]->members, cases[i][1]);
    }
}

Test(api_turns, an_answer_can_be_sent_back_as_it_was_dumped) {
    const Fovea__Inference__V1__Chat *chat = chat_of(
        MEMBERS("\"content\":\"hi\",\"refusal\":null,\"annotations\":null,\"audio\":null,"
                "\"function_call\":null,\"tool_calls\":null,\"reasoning_content\":\"because\""));
    cr_assert_str_eq(chat->turns[0]->text, "hi");
    cr_assert_str_eq(chat->turns[0]->members, "{\"reasoning_content\":\"because\"}");
    chat = chat_of(MEMBERS("\"content\":null"));
    cr_assert(chat->turns[0]->no_content && !chat->turns[0]->members[0]);
    chat = chat_of(MEMBERS("\"content\":[]"));
    cr_assert(chat->turns[0]->no_content && chat->turns[0]->n_parts == 0);
    bad(MEMBERS("\"content\":{}"), "messages[0].content", "text or a list");
}

/* ---- parts ------------------------------------------------------------------------------- */

Test(api_turns, parts_come_in_several_forms) {
    const Fovea__Inference__V1__Chat *chat = chat_of(PARTS(
        "\"one\",{\"type\":\"image_url\",\"image_url\":\"" PNG "\"},{\"text\":\"two\","
        "\"cache_control\":{\"type\":\"ephemeral\"}},{\"image_url\":{\"url\":\"" PNG
        "\",\"uuid\":null},\"type\":\"input_image\"},{\"type\":\"input_text\",\"text\":\"three\","
        "\"image_url\":null},{\"image_url\":\"" PNG "\"}"));
    const Fovea__Inference__V1__Turn *t = chat->turns[0];
    static const char *const want[] = {"one", NULL, "two", NULL, "three", NULL};
    cr_assert_eq(t->n_parts, 6);
    for (size_t i = 0; i < 6; i++) {
        bool text = t->parts[i]->kind_case == FOVEA__INFERENCE__V1__PART__KIND_TEXT;
        cr_assert_eq(text, want[i] != NULL, "part %zu", i);
        if (text) cr_assert_str_eq(t->parts[i]->text, want[i]);
    }
    cr_assert_eq(q.message.n_images, 3);
    for (size_t i = 0; i < 3; i++) cr_assert_eq(q.message.images[i]->data.len, 6);
    bad(PARTS("1"), "messages[0].content[0]", "a text, or an object");
    bad(PARTS("{\"type\":\"image_url\",\"image_url\":\"x\"}"), "messages[0].content[0].image_url",
        "data:");
}

/* ---- fields ------------------------------------------------------------------------------ */

Test(api_turns, fields_of_the_template_arrive_in_any_order) {
    static const char *const bodies[] = {
        "{" HELLO ",\"chat_template_kwargs\":{\"enable_thinking\":false,\"x\":[{\"y\":\"z\"}]},"
        "\"add_generation_prompt\":false,\"continue_final_message\":true,\"reasoning_effort\":"
        "\"hi\\\"gh\",\"add_special_tokens\":false,\"chat_template\":\"{{ x }}\","
        "\"mm_processor_kwargs\":{\"min_pixels\":3136,\"size\":{\"longest_edge\":9999},\"fps\":2}}",
        "{\"mm_processor_kwargs\":{\"max_pixels\":9999,\"size\":{\"shortest_edge\":3136},\"fps\":"
        "[{}]},\"chat_template\":\"{{ x }}\",\"add_special_tokens\":false,\"reasoning_effort\":"
        "\"hi\\\"gh\",\"continue_final_message\":true,\"add_generation_prompt\":false,"
        "\"chat_template_kwargs\":{\"enable_thinking\":false,\"x\":[{\"y\":\"z\"}]}," HELLO "}"};
    for (int i = 0; i < 2; i++) {
        const Fovea__Inference__V1__Chat *chat = chat_of(bodies[i]);
        cr_assert_str_eq(chat->variables, "{\"reasoning_effort\":\"hi\\\"gh\",\"enable_thinking\":"
                                          "false,\"x\":[{\"y\":\"z\"}]}");
        cr_assert(chat->generation_case && !chat->add_generation_prompt);
        cr_assert(chat->continuation_case && chat->continue_final_message);
        cr_assert(q.message.special_case && !q.message.add_special_tokens);
        cr_assert_str_eq(chat->template_, "{{ x }}");
        cr_assert_eq(q.message.image_bounds->pixels_min, 3136);
        cr_assert_eq(q.message.image_bounds->pixels_max, 9999);
    }
    cr_assert_str_eq(chat_of("{" HELLO ",\"reasoning_effort\":\"low\"}")->variables,
                     "{\"reasoning_effort\":\"low\"}");
    cr_assert_str_eq(
        chat_of("{" HELLO ",\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{}}")->variables,
        "{\"reasoning_effort\":\"low\"}");
    cr_assert_str_eq(chat_of("{" HELLO ",\"chat_template_kwargs\":{\"a\":1}}")->variables,
                     "{\"a\":1}");
    const Fovea__Inference__V1__Chat *chat = chat_of("{" HELLO "}");
    cr_assert(!chat->generation_case && !chat->continuation_case && !chat->variables[0] &&
              !q.message.special_case && !q.message.image_bounds);
}

Test(api_turns, fields_of_the_template_are_checked) {
    bad("{" HELLO ",\"chat_template\":\"{{ x }}\"}", "chat_template", "--allow-chat-template");
    bad("{" HELLO ",\"chat_template_kwargs\":[]}", "chat_template_kwargs", "object");
    bad("{" HELLO ",\"reasoning_effort\":1}", "reasoning_effort", "string");
    bad("{" HELLO ",\"add_generation_prompt\":1}", "add_generation_prompt", "true or false");
    bad("{" HELLO ",\"add_generation_prompt\":true,\"continue_final_message\":true}",
        "continue_final_message", "together");
    bad("{" HELLO ",\"mm_processor_kwargs\":1}", "mm_processor_kwargs", "object");
    bad("{" HELLO ",\"mm_processor_kwargs\":{\"min_pixels\":0}}", "mm_processor_kwargs.min_pixels",
        "integer");
    bad("{" HELLO ",\"mm_processor_kwargs\":{\"size\":{\"longest_edge\":\"x\"}}}",
        "mm_processor_kwargs.size.longest_edge", "integer");
}
