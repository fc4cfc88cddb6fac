/* text/chat: chats with tools against transformers (golden files, tests/parity/tools_golden.py), the
 * forms of answers that are found in templates, and prompts that end inside the reasoning. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "text/chat.h"

static const char golden[] = FOVEA_TEST_DATA "/golden/chat_tools";

enum { TURNS_MAX = 8 };

static fv_chat *open_golden(const char *name) {
    char path[4096], *program;
    size_t n;
    fv_chat *c;
    snprintf(path, sizeof path, "%s/%s.jinja", golden, name);
    cr_assert_eq(fv_file_read(path, 1 << 20, &program, &n), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_chat_open(program, "/nonexistent", "llama", true, &c), FV_OK, "%s",
                 fv_last_error());
    free(program);
    return c;
}

/* The variables of a case as the gateway makes them of a request: its tools, and others. */
static char *variables_of(const json_t *c) {
    const json_t *tools = json_object_get(c, "tools");
    json_t *v = json_copy(json_object_get(c, "variables"));
    if (!json_is_null(tools)) json_object_set(v, "tools", (json_t *)(uintptr_t)tools);
    char *text = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    return text;
}

/* Each turn's other members are all of the message, role and content too, which are passed over. */
static int32_t read_turns(const json_t *messages, fv_chat_turn turns[TURNS_MAX]) {
    const int32_t n = (int32_t)json_array_size(messages);
    cr_assert_leq(n, TURNS_MAX);
    for (int32_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(messages, (size_t)i);
        turns[i] = (fv_chat_turn){.role = json_string_value(json_object_get(m, "role")),
                                  .text = json_string_value(json_object_get(m, "content")),
                                  .members = json_dumps(m, JSON_COMPACT)};
    }
    return n;
}

static void expect(const json_t *c) {
    const char *name = json_string_value(json_object_get(c, "template"));
    char *variables = variables_of(c);
    fv_chat_turn turns[TURNS_MAX];
    fv_chat_text t;
    fv_chat *chat = open_golden(name);
    const int32_t n = read_turns(json_object_get(c, "messages"), turns);
    const fv_chat_options opt = {.variables = variables, .opens = FV_CHAT_YES};
    cr_assert_eq(fv_chat_render(chat, turns, n, &opt, 0, &t), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(t.text, json_string_value(json_object_get(c, "rendered")), "%s", name);
    const char *end = t.n > 8 ? t.text + t.n - 8 : "";
    cr_assert_eq(t.reasoning == FV_REASONING_OPEN, strcmp(end, "<think>\n") == 0, "%s", t.text);
    fv_chat_text_free(&t);
    fv_chat_free(chat);
    for (int32_t i = 0; i < n; i++) free((char *)(uintptr_t)turns[i].members);
    free(variables);
}

Test(chat_tools, renderings_are_those_of_transformers) {
    char path[4096];
    snprintf(path, sizeof path, "%s/cases.json", golden);
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *cases = json_object_get(root, "cases");
    cr_assert_geq(json_array_size(cases), 15);
    for (size_t i = 0; i < json_array_size(cases); i++) expect(json_array_get(cases, i));
    json_decref(root);
}

Test(chat_tools, forms_are_found_in_the_template) {
    static const char *const rows[][3] = {
        {"hermes", "hermes", "think"}, {"xml", "qwen3_xml", ""}, {"mistral", "mistral", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fv_chat *c = open_golden(rows[i][0]);
        cr_assert_str_eq(fv_chat_tool_parser(c), rows[i][1]);
        cr_assert_str_eq(fv_chat_reasoning_parser(c), rows[i][2]);
        fv_chat_free(c);
    }
}
