/* text/calls/tag.c: the formats are such that the grammar lets calls through that the form's parser reads as calls of
 * the tools, strict ones as their parameters say, and no others. */
#include "tests/unit/grammar/grammar_support.h"

#include <stdlib.h>

#include "text/calls/calls.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"strict\":true,\"parameters\":{"
    "\"type\":"
    "\"object\",\"$defs\":{\"k\":{\"type\":\"string\",\"enum\":[\"cat\",\"dog\"]},\"i\":{\"type\":"
    "\"integer\"}},\"properties\":{"
    "\"what\":{\"$ref\":\"#/$defs/k\"},\"n\":{\"$ref\":\"#/$defs/i\"},"
    "\"o\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"}},"
    "\"additionalProperties\":false}},\"required\":[\"what\",\"n\"],"
    "\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":\"wait\"}}]";

static char found[256]; /* the calls that a parser reports */

static fv_status on_text(void *user, const char *text, size_t n) {
    (void)user;
    (void)text;
    (void)n;
    return FV_OK;
}

static fv_status on_call(void *user, const char *name, const char *arguments) {
    const size_t n = strlen(found);
    (void)user;
    snprintf(found + n, sizeof found - n, "%s%s;", name, arguments);
    return FV_OK;
}

static fv_grammar *grammar_of(const fv_calls_form *form, const json_t *list) {
    json_t *tag;
    fv_grammar *g;
    cr_assert_eq(fv_calls_form_tag(form, list, &tag), FV_OK, "%s", fv_last_error());
    cr_assert_not_null(tag);
    char *text = json_dumps(tag, JSON_COMPACT);
    cr_assert_eq(compile(FV_GRAMMAR_STRUCTURAL_TAG, text, &g), FV_OK, "%s: %s", text,
                 fv_last_error());
    free(text);
    json_decref(tag);
    return g;
}

/* answers: {text, calls that it has; NULL: the grammar does not allow it}. */
static void expect(const char *name, const char *const answers[][2]) {
    static const fv_calls_events events = {on_text, on_call};
    const fv_calls_form *form = fv_calls_form_named(name);
    json_t *list = json_loads(tools, 0, NULL);
    fv_grammar *g = grammar_of(form, list);
    for (size_t i = 0; answers[i][0]; i++) {
        const char *text = answers[i][0], *calls = answers[i][1];
        fv_calls_parser *p;
        cr_expect_eq(reads(g, text) == 2, calls != NULL, "%s: %s", name, text);
        if (!calls) continue;
        found[0] = '\0';
        cr_assert_eq(fv_calls_parser_open(form, list, &events, NULL, &p), FV_OK);
        cr_assert_eq(fv_calls_parser_feed(p, text, strlen(text)), FV_OK);
        cr_assert_eq(fv_calls_parser_end(p), FV_OK);
        cr_expect_str_eq(found, calls, "%s: %s", name, text);
        fv_calls_parser_close(p);
    }
    fv_grammar_unref(g);
    json_decref(list);
}

Test(tag, hermes) {
    expect(
        "hermes",
        (const char *const[][2]){
            {"It is red, {\"a\":1}.", ""},
            {"I look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"what\": \"cat\", \"n\": "
             "2}}\n</tool_call>",
             "look{\"what\":\"cat\",\"n\":2};"},
            {"<tool_call>\n{\"name\": \"wait\", \"arguments\": {\"x\": 1}}\n</tool_call>",
             "wait{\"x\":1};"},
            {"<tool_call>\n{\"name\": \"look\", \"arguments\": {\"what\": \"cow\", \"n\": "
             "2}}\n</tool_call>",
             NULL},
            {"<tool_call>\n{\"name\": \"cook\", \"arguments\": {}}\n</tool_call>", NULL},
            {NULL, NULL}});
}

Test(tag, qwen3_xml) {
    expect(
        "qwen3_xml",
        (const char *const[][2]){
            {"It is red.", ""},
            {"Hm.\n\n<tool_call>\n<function=look>\n<parameter=what>\ndog\n</parameter>\n"
             "<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>",
             "look{\"what\":\"dog\",\"n\":12};"},
            {"<tool_call>\n<function=look>\n<parameter=what>\ndog\n</parameter>\n<parameter=n>\n"
             "1\n</parameter>\n<parameter=o>\n{\"x\":\"</parameter>\"}\n</parameter>\n</function>\n"
             "</tool_call>",
             "look{\"what\":\"dog\",\"n\":1,\"o\":{\"x\":\"</parameter>\"}};"},
            {"<tool_call>\n<function=wait>\n<parameter=s>\na <b>\n</parameter>\n</function>\n"
             "</tool_call>",
             "wait{\"s\":\"a <b>\"};"},
            {"<tool_call>\n<function=wait>\n<parameter=s>\n</function>\n</tool_call>\n</"
             "parameter>\n"
             "</function>\n</tool_call>",
             "wait{\"s\":\"</function>\\n</tool_call>\"};"},
            {"<tool_call>\n<function=look>\n<parameter=what>\ncow\n</parameter>\n<parameter=n>\n1\n"
             "</parameter>\n</function>\n</tool_call>",
             NULL},
            {"<tool_call>\n<function=look>\n<parameter=what>\ncat\n</parameter>\n</function>\n"
             "</tool_call>",
             NULL},
            {NULL, NULL}});
}

Test(tag, mistral) {
    expect("mistral",
           (const char *const[][2]){
               {"It is [red].", ""},
               {"[TOOL_CALLS][{\"name\": \"look\", \"arguments\": {\"what\": \"cat\", \"n\": 1}}, "
                "{\"name\": \"wait\", \"arguments\": {}}]",
                "look{\"what\":\"cat\",\"n\":1};wait{};"},
               {"[TOOL_CALLS]look[ARGS]{\"what\": \"dog\", \"n\": 0}",
                "look{\"what\":\"dog\",\"n\":0};"},
               {"[TOOL_CALLS]look[ARGS]{\"what\": \"dog\"}", NULL},
               {"[TOOL_CALLS][{\"name\": \"look\", \"arguments\": {}}]", NULL},
               {"[TOOL_CALLS]", NULL},
               {NULL, NULL}});
}

Test(tag, llama3_json) {
    expect("llama3_json",
           (const char *const[][2]){
               {"It is {red}.", ""},
               {"{\"name\": \"look\", \"parameters\": {\"what\": \"cat\", \"n\": 1}}",
                "look{\"what\":\"cat\",\"n\":1};"},
               {"<|python_tag|>{\"name\": \"wait\", \"parameters\": {}}; {\"name\": \"wait\", "
                "\"parameters\": {\"a\": []}}",
                "wait{};wait{\"a\":[]};"},
               {"{\"name\": \"look\", \"parameters\": {\"what\": \"cow\", \"n\": 1}}", NULL},
               {"<|python_tag|>print(1)", NULL},
               {"", ""},
               {NULL, NULL}});
}

Test(tag, gemma_has_none) {
    json_t *list = json_loads(tools, 0, NULL), *tag = list;
    cr_assert_eq(fv_calls_form_tag(fv_calls_form_named("gemma"), list, &tag), FV_OK);
    cr_assert_null(tag);
    json_decref(list);
}
