/* text/calls: each form's calls, and text that only looks like one, in pieces of any size. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/support/called.h"

static json_t *tools;

static void begin(void) {
    char text[] = "[{'type':'function','function':{'name':'look','parameters':{'type':'object',"
                  "'properties':{'what':{'type':'string'},'n':{'type':'integer'},'x':{'type':"
                  "'number'},'on':{'type':'boolean'},'list':{'type':'array'},'o':{'type':'object'},"
                  "'any':{'anyOf':[{'type':'integer'},{'type':'null'}]},'two':{'type':['string',"
                  "'integer']}}}}},{'type':'function','function':{'name':'get_time'}}]";
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    tools = json_loads(text, 0, NULL);
    cr_assert(tools);
}

static void end(void) { json_decref(tools); }

TestSuite(calls, .init = begin, .fini = end, .timeout = 240);

static void expect(const char *form, const char *text, const char *expected) {
    for (uint32_t seed = 0; seed < 60; seed++) {
        const size_t most = seed < 2 ? 1 + 10000 * seed : 1 + seed % 17;
        char *got =
            called_in_pieces(fv_calls_form_named(form), tools, text, strlen(text), seed, most);
        cr_assert_str_eq(got, expected, "%s, seed %u: %s", form, seed, text);
        free(got);
    }
}

Test(calls, hermes) {
    expect("hermes", "Plain text.\n", "Plain text.\n");
    expect("hermes",
           "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"what\": \"cat\"}}\n</tool_call>",
           "{look {\"what\":\"cat\"}}");
    expect("hermes",
           "I look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"what\": \"a } \\\" "
           "</tool_call>\"}}\n</tool_call>\n<tool_call>{\"name\": \"get_time\", \"arguments\": {}}"
           "</tool_call> \n",
           "I look.{look {\"what\":\"a } \\\" </tool_call>\"}}{get_time {}}");
    expect("hermes", "<tool_call>{\"name\": \"get_time\"}", "{get_time {}}");
    expect("hermes",
           "<tool_call>{\"arguments\": \"{\\\"n\\\": 3}\", \"name\": \"look\"}</tool_call>",
           "{look {\"n\":3}}");
    expect("hermes", "<tool_call>{\"name\": \"get_time\"}</tool_call>done", "{get_time {}}done");
}

Test(calls, what_only_looks_like_one_stays_text) {
    static const char *const texts[] = {
        "a < b and <tool_",
        "<tool_call>",
        "<tool_call> not json </tool_call> tail",
        "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"look\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"look\", \"arguments\": {\"what\": }}</tool_call>",
        "<tool_call>{\"name\": \"look\", \"arguments\": {\"what\": \"cut o",
        "<tool_call>{\"colour\": \"red\"}</tool_call>",
        "{\"name\": \"look\", \"arguments\": {}}",
        "   ",
        "tags like <tool_calls> or </tool_call> are text",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) expect("hermes", texts[i], texts[i]);
    expect("hermes", "<tool_call><tool_call>{\"name\": \"get_time\"}</tool_call>",
           "<tool_call>{get_time {}}");
    expect("hermes", "<tool_call>{\"name\": 1}</tool_call> <tool_call>{\"name\": \"get_time\"}",
           "<tool_call>{\"name\": 1}</tool_call>{get_time {}}");
}

Test(calls, xml_has_the_types_of_the_schema) {
    expect("qwen3_xml",
           "Now.\n<tool_call>\n<function=look>\n<parameter=what>\n12\n</parameter>\n<parameter=n>\n"
           "12\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n</function>\n</tool_call>",
           "Now.{look {\"what\":\"12\",\"n\":12,\"on\":true}}");
    expect("qwen3_xml",
           "<function=look><parameter=list>[1, \"a\"]</parameter><parameter=o>{\"k\": null}"
           "</parameter><parameter=any>null</parameter><parameter=two>\"q\"</parameter>"
           "<parameter=unknown>5</parameter></function>",
           "{look {\"list\":[1,\"a\"],\"o\":{\"k\":null},\"any\":null,\"two\":\"\\\"q\\\"\","
           "\"unknown\":\"5\"}}");
    expect("qwen3_xml",
           "<tool_call><function=get_time></function><function=get_time>\n</function>\n"
           "</tool_call>\nbye",
           "{get_time {}}{get_time {}}bye");
    expect("qwen3_xml",
           "<function=look>\n<parameter=what>\na </function> b <parameter=n>\n</parameter>\n"
           "<parameter=n>\n1\n</parameter>\n</function>bye",
           "{look {\"what\":\"a </function> b <parameter=n>\",\"n\":1}}bye");
    expect("qwen3_xml", "<function=rm></function>", "<function=rm></function>");
    expect("qwen3_xml", "<function=look>what</function>", "<function=look>what</function>");
    expect("qwen3_xml", "<tool_call>{\"name\": \"look\"}</tool_call>",
           "<tool_call>{\"name\": \"look\"}</tool_call>");
    expect("qwen3_xml", "<function=look><parameter=what>cut", "<function=look><parameter=what>cut");
}

Test(calls, mistral) {
    expect("mistral",
           "[TOOL_CALLS][{\"name\": \"look\", \"arguments\": {\"n\": 1}}, {\"name\": \"get_time\", "
           "\"arguments\": {}}]",
           "{look {\"n\":1}}{get_time {}}");
    expect("mistral", "Yes.[TOOL_CALLS]look[ARGS]{\"what\": \"[\"}[TOOL_CALLS]get_time{}",
           "Yes.{look {\"what\":\"[\"}}{get_time {}}");
    expect("mistral", "[TOOL_CALLS]look[CALL_ID]abcdefghi[ARGS]{\"n\": 2}", "{look {\"n\":2}}");
    expect("mistral", "[TOOL_CALLS] rm{}", "[TOOL_CALLS] rm{}");
    expect("mistral", "[TOOL_CALLS]look at this", "[TOOL_CALLS]look at this");
    expect("mistral", "[TOOL_CALLS][{\"name\": \"look\"}, {\"name\": \"rm\"}]",
           "[TOOL_CALLS][{\"name\": \"look\"}, {\"name\": \"rm\"}]");
}

Test(calls, llama) {
    expect("llama3_json", "{\"name\": \"look\", \"parameters\": {\"n\": 4}}", "{look {\"n\":4}}");
    expect("llama3_json",
           "\n{\"type\": \"function\", \"name\": \"get_time\", \"parameters\": null}; "
           "{\"name\": \"look\", \"parameters\": {}}",
           "{get_time {}}{look {}}");
    expect("llama3_json", "<|python_tag|>{\"name\": \"get_time\", \"parameters\": {}}<|eom_id|>",
           "{get_time {}}");
    expect("llama3_json", "{\"colour\": \"red\"}", "{\"colour\": \"red\"}");
    expect("llama3_json", "{\"name\": \"Ada\", \"age\": 36} is a record",
           "{\"name\": \"Ada\", \"age\": 36} is a record");
    expect("llama3_json", "As JSON: {\"name\": \"look\", \"parameters\": {}}",
           "As JSON: {\"name\": \"look\", \"parameters\": {}}");
    expect("llama3_json", "{", "{");
}

Test(calls, gemma) {
    expect("gemma",
           "<start_function_call>call:look{what:<escape>a {b}, c<escape>,n:3,list:[1,<escape>z"
           "<escape>,{k:true}],on:false}<end_function_call>",
           "{look {\"what\":\"a {b}, c\",\"n\":3,\"list\":[1,\"z\",{\"k\":true}],\"on\":false}}");
    expect("gemma",
           "<|tool_call>call:look{what:<|\"|>it<|\"|>, x:-1.5}<tool_call|><|tool_call>"
           "call:get_time{}<tool_call|>",
           "{look {\"what\":\"it\",\"x\":-1.5}}{get_time {}}");
    expect("gemma", "<start_function_call>call:rm{}<end_function_call>",
           "<start_function_call>call:rm{}<end_function_call>");
    expect("gemma", "<start_function_call>call:look{what:bare words}",
           "<start_function_call>call:look{what:bare words}");
    expect("gemma", "<start_function_call>look{}", "<start_function_call>look{}");
}

Test(calls, forms_are_found_in_templates) {
    static const char *const rows[][2] = {
        {"{{'<tool_call>\\n<function=' + name}}", "qwen3_xml"},
        {"{{ '<tool_call>\\n{\"name\": \"' }}", "hermes"},
        {"{{ '[TOOL_CALLS] [' }}", "mistral"},
        {"<start_function_call>call:", "gemma"},
        {"{{ '{\"name\": function name, \"parameters\": dictionary of argument' }}", "llama3_json"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_str_eq(fv_calls_form_name(fv_calls_form_of_template(rows[i][0])), rows[i][1]);
    cr_assert_null(fv_calls_form_of_template("{{ messages }}"));
    cr_assert_null(fv_calls_form_named("none"));
}

/* Everything comes out, whatever its length; a call beyond the limit is text. */
Test(calls, memory_is_bounded) {
    const size_t n = 3 * FV_CALLS_HELD_MAX;
    char *text = malloc(n + 1);
    memset(text, 'x', n);
    text[n] = '\0';
    memcpy(text, "<tool_call>{\"name\": \"", 21);
    char *got = called_in_pieces(fv_calls_form_named("hermes"), tools, text, n, 1, 9000);
    cr_assert(strlen(got) == n && memcmp(got, text, n) == 0);
    free(got);
    memset(text, ' ', n);
    got = called_in_pieces(fv_calls_form_named("llama3_json"), tools, text, n, 1, 9000);
    cr_assert(strlen(got) == n);
    free(got);
    free(text);
}

Test(calls, so_is_their_number) {
    char *text, *got;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    for (int i = 0; i < FV_CALLS_MAX + 2; i++)
        fputs("<tool_call>{\"name\": \"get_time\"}</tool_call>", f);
    fclose(f);
    got = called_in_pieces(fv_calls_form_named("hermes"), tools, text, n, 1, 50);
    int calls = 0;
    for (const char *at = got; (at = strstr(at, "{get_time {}}")); at++) calls++;
    cr_assert_eq(calls, FV_CALLS_MAX);
    cr_assert(strstr(got, "<tool_call>{\"name\": \"get_time\"}"));
    free(text);
    free(got);
}
