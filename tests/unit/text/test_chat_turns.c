/* text/chat.h: turns of every shape, and the options of a rendering. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "text/chat.h"

static fv_chat *by_name(const char *name) {
    fv_chat *c;
    cr_assert_eq(fv_chat_open(name, "/nonexistent", "llama", true, &c), FV_OK, "%s",
                 fv_last_error());
    return c;
}

static void refuse(const char *name, const fv_chat_turn *turns, int32_t n, const char *words) {
    fv_chat_text t = {0};
    fv_chat *c = by_name(name);
    cr_assert_eq(fv_chat_render(c, turns, n, NULL, 0, &t), FV_EINVAL);
    cr_assert_null(t.text);
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
    fv_chat_free(c);
}

static void renders(const char *template, const fv_chat_turn *turns, int32_t n,
                    const fv_chat_options *opt, const char *want) {
    fv_chat_text t;
    fv_chat *c = by_name(template);
    cr_assert_eq(fv_chat_render(c, turns, n, opt, 0, &t), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(t.text, want);
    fv_chat_text_free(&t);
    fv_chat_free(c);
}

static const fv_chat_turn user = {.role = "user", .text = "q"},
                          said = {.role = "assistant", .text = "a "},
                          rule = {.role = "system", .text = "s"},
                          tool = {.role = "tool", .text = "x"};

Test(chat_turns, the_template_decides_which_turns_follow_each_other) {
    renders("llava", (fv_chat_turn[]){user, user, rule, user}, 4, NULL,
            "USER: q USER: q s USER: q ASSISTANT:");
    renders("llava", (fv_chat_turn[]){said, tool, user}, 3, NULL,
            "ASSISTANT: a  TOOL: x USER: q ASSISTANT:");
    renders("chatml", (fv_chat_turn[]){rule}, 1, NULL,
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\n");
    renders("phi3-chat", (fv_chat_turn[]){rule, user}, 2, NULL,
            "<|system|>\ns<|end|><|user|>\nq<|end|><|assistant|>\n");
    renders("Hermes-2", (fv_chat_turn[]){rule, user}, 2, NULL,
            "<|im_start|>system\ns<|im_end|><|im_start|>user\nq<|im_end|><|im_start|>assistant\n");
    refuse("llava", NULL, 0, "no turns");
    refuse("llava", (fv_chat_turn[]){{.role = "", .text = "x"}}, 1, "turn 0 has no role");
    refuse("vicuna", (fv_chat_turn[]){tool}, 1,
           "the chat template refuses: there are system, user and assistant turns, not tool");
}

Test(chat_turns, internvl_s_own_system_message_comes_first_unless_a_turn_is_one) {
    const fv_chat_part parts[] = {{.text = "q"}, {.text = NULL}};
    const fv_chat_turn shown = {.role = "user", .n_part = 2, .part = parts};
    renders("internvl2_5", &shown, 1, NULL,
            "<|im_start|>system\n"
            "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开"
            "发的多模"
            "态大语言模型。<|im_end|>\n<|im_start|>user\nq<IMG_CONTEXT>\n<|im_end|>\n"
            "<|im_start|>assistant\n");
    renders("internvl2_5", (fv_chat_turn[]){rule, user, said, user}, 4, NULL,
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\na <|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n");
}

Test(chat_turns, an_assistant_turn_at_the_end_is_continued) {
    const fv_chat_turn two[] = {user, said};
    const fv_chat_options opens = {.opens = FV_CHAT_YES}, shut = {.opens = FV_CHAT_NO},
                          cut = {.opens = FV_CHAT_NO, .continues = FV_CHAT_YES},
                          both = {.opens = FV_CHAT_YES, .continues = FV_CHAT_YES};
    static const char whole[] =
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na <|im_end|>\n";
    char open[200];
    fv_chat_text t = {0};
    renders("chatml", two, 2, NULL, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na ");
    renders("chatml", two, 2, &cut, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na ");
    renders("chatml", two, 2, &shut, whole);
    snprintf(open, sizeof open, "%s<|im_start|>assistant\n", whole);
    renders("chatml", two, 2, &opens, open);
    renders("chatml", &user, 1, &cut, "<|im_start|>user\nq");
    /* a template that trims texts: what it has cut off is no part of the prompt */
    renders("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", two, 2, NULL, "[q][a");
    /* of parts with one text in one place only the last has the mark */
    static const char same[] = "x";
    const fv_chat_part parts[] = {{.text = same}, {.text = same}};
    const fv_chat_turn twice = {.role = "assistant", .n_part = 2, .part = parts};
    renders("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}", &twice, 1, NULL,
            "<x><x");
    /* calls of tools are no text to continue */
    const fv_chat_turn calls = {
        .role = "assistant", .text = "a", .members = "{\"tool_calls\": []}"};
    renders("{% for m in messages %}{{ m.content }};{% endfor %}", &calls, 1, NULL, "a;");
    fv_chat *c = by_name("{{ messages | length }}");
    cr_assert_eq(fv_chat_render(c, two, 2, NULL, 0, &t), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "cannot be continued"), "%s", fv_last_error());
    cr_assert_eq(fv_chat_render(c, two, 2, &both, 0, &t), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "cannot both be true"), "%s", fv_last_error());
    cr_assert_eq(fv_chat_render(c, &(fv_chat_turn){.role = "user"}, 1, &cut, 0, &t), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "no text to continue"), "%s", fv_last_error());
    cr_assert_null(t.text);
    fv_chat_free(c);
}

#define DUMP "{% for m in messages %}{{ m | tojson }}{% endfor %}"

Test(chat_turns, other_members_reach_the_template_as_it_reads_them) {
    static const struct {
        const char *members, *want;
    } cases[] = {
        {NULL, ""},
        {"{}", ""},
        {"{\"name\": \"Bob\", \"refusal\": null}", ", \"name\": \"Bob\""},
        {"{\"role\": \"x\", \"content\": 1}", ""},
        {"{\"tool_calls\": []}", ""},
        {"{\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
         "[1]}\"}}]}",
         ", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1]}}}]"},
        {"{\"tool_calls\": [{\"function\": {\"arguments\": \"\"}}, {\"function\": {}}, {}, 1]}",
         ", \"tool_calls\": [{\"function\": {\"arguments\": {}}}, {\"function\": {\"arguments\": "
         "{}}}, "
         "{}, 1]"},
        {"{\"reasoning\": \"r\"}",
         ", \"reasoning\": \"r\", \"reasoning_content\": \"r\", \"thinking\": \"r\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fv_chat_turn turn = {.role = "assistant", .text = "a", .members = cases[i].members};
        const fv_chat_options shut = {.opens = FV_CHAT_NO};
        char want[400];
        snprintf(want, sizeof want, "{\"role\": \"assistant\", \"content\": \"a\"%s}",
                 cases[i].want);
        renders(DUMP, &turn, 1, &shut, want);
    }
    refuse(DUMP, &(fv_chat_turn){.role = "user", .text = "", .members = "[1]"}, 1,
           "turn 0: the other members of a turn must be a JSON object");
    refuse(DUMP, &(fv_chat_turn){.role = "user", .text = "", .members = "{"}, 1, "turn 0: ");
    refuse(DUMP,
           &(fv_chat_turn){.role = "assistant",
                           .text = "",
                           .members = "{\"tool_calls\": [{\"function\": {\"arguments\": \"{\"}}]}"},
           1, "the arguments of a tool call are not JSON");
}

Test(chat_turns, a_turn_without_content_is_null_where_the_template_asks_for_it) {
    const fv_chat_turn nothing = {.role = "assistant"};
    const fv_chat_options shut = {.opens = FV_CHAT_NO};
    renders("{{ messages[0].content is none }}", &nothing, 1, &shut, "True");
    renders("{% if none == messages[0]['content'] %}null{% endif %}", &nothing, 1, &shut, "null");
    renders("[{{ messages[0].content }}]", &nothing, 1, &shut, "[]");
    renders("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", &nothing, 1, &shut,
            "[]");
}

Test(chat_turns, texts_of_a_turn_are_joined_for_a_template_that_takes_text) {
    static const fv_chat_part two[] = {{.text = "a"}, {.text = "b"}};
    const fv_chat_turn turn = {.role = "user", .n_part = 2, .part = two};
    renders("{{ messages[0].content }}", &turn, 1, NULL, "a\nb");
    renders("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", &turn, 1, NULL,
            "[a][b]");
    /* a template that takes either has the list that came */
    renders("{% if messages[0].content is string %}text{% else %}{% for p in messages[0].content %}"
            "[{{ p.text }}]{% endfor %}{% endif %}",
            &turn, 1, NULL, "[a][b]");
}

Test(chat_turns, variables_of_the_caller_are_the_templates) {
    const fv_chat_options opt = {
        .variables =
            "{\"enable_thinking\": false, \"deep\": {\"a\": [1.5]}, \"bos_token\": \"B\"}"};
    fv_chat_text t = {0};
    renders("{{ enable_thinking }} {{ deep.a }} {{ bos_token }} {{ add_generation_prompt }}", &user,
            1, &opt, "False [1.5] B True");
    fv_chat *c = by_name("{{ x }}");
    static const char *const bad[] = {"[]", "{", "{\"messages\": []}", "{\"chat_template\": \"\"}",
                                      "{\"x\": \"\\u0000\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const fv_chat_options wrong = {.variables = bad[i]};
        cr_assert_eq(fv_chat_render(c, &user, 1, &wrong, 0, &t), FV_EINVAL, "%s", bad[i]);
        cr_assert(strstr(fv_last_error(), "chat_template_kwargs"), "%s", fv_last_error());
    }
    fv_chat_free(c);
}

/* Special tokens that a caller spells stay plain text wherever they come in. */
Test(chat_turns, what_a_caller_writes_is_marked_as_the_users) {
    const fv_chat_turn turn = {.role = "</s>", .text = "t", .members = "{\"</s>\": \"</s>\"}"};
    const fv_chat_options opt = {.variables = "{\"x\": \"</s>\"}"};
    fv_chat *c =
        by_name("{{ messages[0].role }}{% for k in messages[0] %}{{ k if '<' in k }}{% endfor "
                "%}{{ messages[0]['</s>'] }}{{ x }}|");
    fv_chat_text t;
    cr_assert_eq(fv_chat_render(c, &turn, 1, &opt, 0, &t), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(t.text, "</s></s></s></s>|");
    for (size_t i = 0; i < t.n; i++) cr_assert_eq(t.user[i], i + 1 < t.n);
    fv_chat_text_free(&t);
    fv_chat_free(c);
    c = by_name("<|{{ messages[0].role }}|>");
    cr_assert_eq(fv_chat_render(c, &user, 1, NULL, 0, &t), FV_OK);
    for (size_t i = 0; i < t.n; i++) cr_assert_eq(t.user[i], 0);
    fv_chat_text_free(&t);
    fv_chat_free(c);
}

Test(chat_turns, special_tokens_are_added_as_asked) {
    fv_chat *c = by_name("vicuna");
    fv_chat_text t;
    for (fv_chat_flag f = FV_CHAT_UNSET; f <= FV_CHAT_YES; f++) {
        const fv_chat_options opt = {.special = f};
        cr_assert_eq(fv_chat_render(c, &user, 1, &opt, 0, &t), FV_OK);
        cr_assert_eq(t.adds_special, f != FV_CHAT_NO);
        fv_chat_text_free(&t);
    }
    fv_chat_free(c);
}

Test(chat_turns, images_of_a_turn_are_bounded_and_may_be_in_any) {
    renders("vicuna",
            (fv_chat_turn[]){{.role = "system", .text = "s", .n_image = 1},
                             {.role = "user", .text = "q"}},
            2, NULL, "<image>\ns USER: q ASSISTANT:");
    refuse("vicuna", (fv_chat_turn[]){{.role = "user", .text = "q", .n_image = -1}}, 1,
           "has -1 images");
    refuse("vicuna", (fv_chat_turn[]){{.role = "user", .text = "q", .n_image = 1025}}, 1,
           "has 1025 images");
}
