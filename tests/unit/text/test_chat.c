/* text/chat: renderings against transformers' (golden files, tests/parity/chat_golden.py), the
 * choice of a template, invalid turns, and special tokens that users write. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tests/support/tensor_file.h"
#include "text/chat.h"
#include "text/tokenizer.h"

static const char golden[] = FOVEA_TEST_DATA "/golden/chat";

static fv_chat *open_chat(const char *spec, const char *dir, const char *family, bool has_vision) {
    fv_chat *c = NULL;
    cr_assert_eq(fv_chat_open(spec, dir, family, has_vision, &c), FV_OK, "%s", fv_last_error());
    return c;
}

static fv_chat *by_name(const char *name) { return open_chat(name, "/nonexistent", "llama", true); }

static char *render(const fv_chat *c, const fv_chat_turn *turns, int32_t n) {
    fv_chat_text t;
    cr_assert_eq(fv_chat_render(c, turns, n, NULL, 0, &t), FV_OK, "%s", fv_last_error());
    cr_assert_eq(strlen(t.text), t.n);
    free(t.user);
    return t.text;
}

static char *golden_template(const char *name) {
    char path[4096], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s.jinja", golden, name);
    cr_assert_eq(fv_file_read(path, 1 << 20, &text, &n), FV_OK, "%s", fv_last_error());
    return text;
}

static int32_t read_turns(const json_t *list, fv_chat_turn turns[16]) {
    int32_t n = (int32_t)json_array_size(list);
    cr_assert_leq(n, 16);
    for (int32_t i = 0; i < n; i++) {
        const json_t *t = json_array_get(list, (size_t)i);
        turns[i] =
            (fv_chat_turn){.role = json_string_value(json_object_get(t, "role")),
                           .text = json_string_value(json_object_get(t, "text")),
                           .n_image = (int32_t)json_integer_value(json_object_get(t, "n_image"))};
    }
    return n;
}

/* Expects the rendering both by the template's name and by its text. */
static void expect(const json_t *c) {
    fv_chat_turn turns[16];
    int32_t n = read_turns(json_object_get(c, "turns"), turns);
    const char *name = json_string_value(json_object_get(c, "template"));
    char *program = golden_template(name);
    for (int by_text = 0; by_text < 2; by_text++) {
        fv_chat *chat = by_name(by_text ? program : name);
        char *text = render(chat, turns, n);
        cr_assert_str_eq(text, json_string_value(json_object_get(c, "rendered")));
        free(text);
        fv_chat_free(chat);
    }
    free(program);
}

Test(chat, renderings_are_those_of_transformers) {
    char path[4096];
    snprintf(path, sizeof path, "%s/cases.json", golden);
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *cases = json_object_get(root, "cases");
    cr_assert_geq(json_array_size(cases), 50);
    for (size_t i = 0; i < json_array_size(cases); i++) expect(json_array_get(cases, i));
    json_decref(root);
}

/* ---- which template ---- */

static void expect_name(const char *dir, const char *family, bool has_vision, const char *name) {
    fv_chat *c = open_chat("", dir, family, has_vision);
    cr_assert_str_eq(fv_chat_name(c), name);
    fv_chat_free(c);
}

Test(chat, names_are_known_or_refused) {
    static const char *const names[] = {"vicuna",      "llava",    "chatml",    "mistral",
                                        "internvl2_5", "Hermes-2", "phi3-chat", "none"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fv_chat *c = by_name(names[i]);
        cr_assert_str_eq(fv_chat_name(c), names[i]);
        fv_chat_free(c);
    }
    fv_chat *c;
    cr_assert_eq(fv_chat_open("alpaca", "/nonexistent", "llama", true, &c), FV_EINVAL);
    cr_assert_not_null(
        strstr(fv_last_error(), "unknown chat template 'alpaca'; available: vicuna, llava"));
}

/* {"chat_template": <text>} */
static void write_json_template(const char *dir, const char *name, const char *text) {
    json_t *j = json_pack("{s:s}", "chat_template", text);
    char *out = json_dumps(j, 0);
    write_text(dir, name, out);
    free(out);
    json_decref(j);
}

static const fv_chat_turn hi = {.role = "user", .text = "hi"};

static void expect_render(const char *dir, const char *want) {
    fv_chat *c = open_chat("", dir, "llama", true);
    char *text = render(c, &hi, 1);
    cr_assert_str_eq(text, want);
    free(text);
    fv_chat_free(c);
}

Test(chat, the_first_file_that_has_a_template_is_the_checkpoints) {
    static const char *const files[] = {"tokenizer_config.json", "processor_config.json",
                                        "chat_template.json"};
    char dir[4096], folder[4200];
    scratch_dir(dir, sizeof dir);
    for (size_t i = 0; i < 3; i++) {
        char program[64];
        snprintf(program, sizeof program, "%zu {{ messages[0]['content'] }}", i);
        write_json_template(dir, files[i], program);
        expect_name(dir, "llama", true, files[i]);
        snprintf(program, sizeof program, "%zu hi", i);
        expect_render(dir, program);
    }
    cr_assert_eq(fv_path_join(dir, "chat_templates", folder, sizeof folder), FV_OK);
    cr_assert_eq(fv_dir_make(folder), FV_OK);
    write_text(folder, "default.jinja", "named {{ messages[0].content }}\n");
    expect_name(dir, "llama", true, "chat_templates/default.jinja");
    write_text(dir, "chat_template.jinja", "own {{ messages[0].content }}\n");
    expect_name(dir, "llama", true, "chat_template.jinja");
    expect_render(dir, "own hi");
}

Test(chat, a_small_checkpoint_has_its_own) {
    expect_name(FOVEA_TEST_DATA "/../checkpoints/nano", "llama", true, "chat_template.jinja");
}

Test(chat, the_default_of_a_list_of_templates_counts) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"{{ tools }}\"},"
               "{\"name\": \"default\", \"template\": \"d {{ messages[0].content }}\"}]}");
    expect_render(dir, "d hi");
    write_text(dir, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"{{ x }}\"}]}");
    fv_chat *c;
    cr_assert_eq(fv_chat_open("", dir, "llama", true, &c), FV_EUNSUPPORTED);
    cr_assert_not_null(strstr(fv_last_error(), "--raw"));
}

Test(chat, without_a_template_the_text_family_decides) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": null}");
    expect_name(dir, "llama", true, "vicuna");
    expect_name(dir, "mistral", true, "mistral");
    expect_name(dir, "qwen2", true, "chatml");
    expect_name(dir, "llama", false, "none");
}

static void refuse_program(const char *program, fv_status status, const char *words) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "chat_template.jinja", program);
    fv_chat *c;
    cr_assert_eq(fv_chat_open("", dir, "llama", true, &c), status, "%s", program);
    cr_assert_not_null(strstr(fv_last_error(), words), "%s", fv_last_error());
    cr_assert_not_null(strstr(fv_last_error(), "--chat"));
    cr_assert_not_null(strstr(fv_last_error(), "--raw"));
}

Test(chat, a_template_that_does_not_run_says_line_construct_and_how_to_go_on) {
    refuse_program("a\n{% include 'b' %}", FV_EUNSUPPORTED,
                   "chat_template.jinja:2: the block 'include'");
    refuse_program("{% for m in messages", FV_EDATA, "chat_template.jinja:1: '{%' has no end");
}

Test(chat, a_broken_config_file_is_named) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json", "{\"chat_template\":");
    fv_chat *c;
    cr_assert_eq(fv_chat_open("", dir, "llama", true, &c), FV_EDATA);
    cr_assert_not_null(strstr(fv_last_error(), "tokenizer_config.json: not valid JSON"));
}

Test(chat, a_file_on_the_command_line_is_read_and_a_name_is_itself) {
    char dir[4096], path[4200], *spec;
    scratch_dir(dir, sizeof dir);
    write_text(dir, "own.jinja", "mine {{ messages[0].content }}");
    snprintf(path, sizeof path, "%s/own.jinja", dir);
    cr_assert_eq(fv_chat_read_spec(path, &spec), FV_OK, "%s", fv_last_error());
    fv_chat *c = by_name(spec);
    char *text = render(c, &hi, 1);
    cr_assert_str_eq(text, "mine hi");
    cr_assert_str_eq(fv_chat_name(c), "--chat");
    free(text);
    free(spec);
    fv_chat_free(c);
    cr_assert_eq(fv_chat_read_spec("vicuna", &spec), FV_OK);
    cr_assert_str_eq(spec, "vicuna");
    free(spec);
    write_text(dir, "own.jinja", "no program");
    cr_assert_eq(fv_chat_read_spec(path, &spec), FV_EINVAL);
    snprintf(path, sizeof path, "%s/none.jinja", dir);
    cr_assert_eq(fv_chat_read_spec(path, &spec), FV_ENOTFOUND);
}

/* ---- special tokens, content, BOS ---- */

Test(chat, special_tokens_are_variables) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "chat_template.jinja",
               "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ image_token }}");
    write_text(dir, "tokenizer_config.json",
               "{\"bos_token\": null, \"eos_token\": {\"content\": \"<|end|>\"}, \"image_token\": "
               "\"<i>\"}");
    expect_render(dir, "hi<|end|><i>");
    write_text(dir, "tokenizer_config.json",
               "{\"model_max_length\": 1000000000000000019884624838656}");
    expect_render(dir, "<s>hi</s>");
}

Test(chat, content_is_text_or_parts_as_the_template_reads_it) {
    static const struct {
        const char *program, *text, *image; /* rendered; NULL: refused */
    } cases[] = {
        {"{{ messages[0].content }}", "hi", NULL},
        {"{% for c in messages[0].content %}{{ c.type }},{% endfor %}", "text,", "image,text,"},
        {"{% if messages[0].content is string %}s{% else %}{% for c in messages[0].content %}{{ "
         "c.type }},"
         "{% endfor %}{% endif %}",
         "s", "image,text,"}};
    const fv_chat_turn image = {.role = "user", .text = "hi", .n_image = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_chat *c = by_name(cases[i].program);
        fv_chat_text t;
        char *text = render(c, &hi, 1);
        cr_assert_str_eq(text, cases[i].text);
        free(text);
        cr_assert_eq(fv_chat_render(c, &image, 1, NULL, 0, &t),
                     cases[i].image ? FV_OK : FV_EUNSUPPORTED);
        if (cases[i].image) {
            cr_assert_str_eq(t.text, cases[i].image);
            fv_chat_text_free(&t);
        }
        fv_chat_free(c);
    }
}

static bool adds_special(const char *program, bool has_vision) {
    fv_chat *c = open_chat(program, "/nonexistent", "llama", has_vision);
    fv_chat_text t;
    cr_assert_eq(fv_chat_render(c, &(fv_chat_turn){.role = "user", .text = "<s>"}, 1, NULL, 0, &t),
                 FV_OK);
    bool adds = t.adds_special;
    fv_chat_text_free(&t);
    fv_chat_free(c);
    return adds;
}

Test(chat, bos_is_added_unless_the_template_writes_it) {
    cr_assert(!adds_special("{{ bos_token }}{{ messages[0].content }}", true));
    cr_assert(adds_special("{{ messages[0].content }}", true)); /* the user's <s> is text */
    cr_assert(!adds_special("{{ messages[0].content }}", false));
    cr_assert(adds_special("vicuna", true));
    cr_assert(adds_special("none", false));
}

/* ---- turns ---- */

Test(chat, parts_keep_their_order) {
    static const fv_chat_part mixed[] = {{.text = "First"},
                                         {.text = NULL},
                                         {.text = "then"},
                                         {.video = true},
                                         {.text = "what differs?"}},
                              first[] = {{.text = NULL}, {.text = "hi"}},
                              words[] = {{.text = "h"}, {.text = "i"}};
    const fv_chat_turn turn = {.role = "user", .n_part = 5, .part = mixed};
    cr_assert_eq(fv_chat_turn_images(&turn), 2);
    fv_chat *c = by_name("{% for m in messages %}{% for p in m['content'] %}"
                         "{{ '[' ~ p['text'] ~ ']' if p['type'] == 'text' else '<' ~ p['type'] ~ "
                         "'>' }}{% endfor %}{% endfor %}");
    char *text = render(c, &turn, 1);
    cr_assert_str_eq(text, "[First]<image>[then]<video>[what differs?]");
    free(text);
    fv_chat_free(c);
    /* The shorter form is the same turn; a template that takes text has the parts joined. */
    const fv_chat_turn pairs[][2] = {
        {{.role = "user", .text = "hi", .n_image = 1},
         {.role = "user", .n_part = 2, .part = first}},
        {{.role = "user", .text = "hi"}, {.role = "user", .n_part = 2, .part = words}}};
    for (size_t i = 0; i < 2; i++) {
        c = by_name(i ? "chatml" : "vicuna");
        char *a = render(c, &pairs[i][0], 1), *b = render(c, &pairs[i][1], 1);
        cr_assert_str_eq(a, b);
        free(a);
        free(b);
        fv_chat_free(c);
    }
}

static void refuse(const char *name, const fv_chat_turn *turns, int32_t n, const char *words) {
    fv_chat_text t = {0};
    fv_chat *c = by_name(name);
    cr_assert_eq(fv_chat_render(c, turns, n, NULL, 0, &t), FV_EINVAL);
    cr_assert_null(t.text);
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
    fv_chat_free(c);
}

Test(chat, what_a_template_refuses_is_the_users_error) {
    refuse("{{ raise_exception('no: ' ~ messages | length) }}", &hi, 1,
           "--chat:1: the chat template refuses: no: 1");
}

Test(chat, text_that_is_no_utf8_goes_through) {
    fv_chat *c = by_name("vicuna");
    char *text = render(c, &(fv_chat_turn){.role = "user", .text = "a\xff\xc3"}, 1);
    cr_assert_str_eq(text, "USER: a\xff\xc3 ASSISTANT:");
    free(text);
    fv_chat_free(c);
}

Test(chat, none_passes_the_text_through) {
    fv_chat *c = by_name("none");
    char *text = render(c, &(fv_chat_turn){.role = "user", .text = "as <image> written"}, 1);
    cr_assert_str_eq(text, "as <image> written");
    free(text);
    fv_chat_free(c);
    const fv_chat_turn two[] = {{.role = "system", .text = "s"}, {.role = "user", .text = "q"}};
    refuse("none", two, 2, "one user turn, not 2 turns");
}

/* ---- continuing after an answer ---- */

/* A template, its tokenizer, and what it writes before and after an answer. */
typedef struct pairing {
    const char *template, *tokenizer, *lead, *end;
} pairing;

static const pairing pairings[] = {
    {"vicuna", "llama2", " ", "</s>"},
    {"vicuna", "metaspace-first", " ", "</s>"},
    {"vicuna", "metaspace-always", " ", "</s>"},
    {"vicuna", "metaspace-never", " ", "</s>"},
    {"llava", "llama2", " ", "</s>"},
    {"llava", "metaspace-first", " ", "</s>"},
    {"llava", "qwen2", " ", "<|endoftext|>"},
    {"chatml", "qwen2", "", "<|im_end|>"},
    {"chatml", "smollm2", "", "<|im_end|>"},
    {"mistral", "llama2", " ", "</s>"},
    {"mistral", "metaspace-first", " ", "</s>"},
    {"none", "gpt2", " ", "<|endoftext|>"},
};

static const fv_chat_turn question = {.role = "user", .text = "What is in the picture?"},
                          answer = {.role = "assistant", .text = "Two cats, and a dog."},
                          next = {.role = "user", .text = "Which of them sleeps?"};

/* The whole conversation as one text; the answer has ended by itself or was cut off. Where the
 * template has no end of its own for an answer, the model's own end stays. */
static char *whole_text(const pairing *p, bool ended) {
    fv_chat *c = by_name(p->template);
    bool llava = !strcmp(p->template, "llava");
    char *text;
    if (!strcmp(p->template, "none") || (llava && ended)) {
        char *first = render(c, &question, 1), *second = render(c, &next, 1);
        size_t cap = 4096;
        text = malloc(cap);
        cr_assert(text);
        snprintf(text, cap, "%s%s%s%s%s%s", first, p->lead, answer.text, ended ? p->end : "",
                 llava ? " " : "", second);
        free(first);
        free(second);
    } else {
        text = render(c, (fv_chat_turn[]){question, answer, next}, 3);
    }
    fv_chat_free(c);
    return text;
}

static char *continued(const char *name, const char *ended) {
    fv_chat *c = by_name(name);
    fv_chat_text t;
    cr_assert_eq(fv_chat_continue(c, &next, 1, NULL, ended, 0, &t), FV_OK, "%s", fv_last_error());
    free(t.user);
    fv_chat_free(c);
    return t.text;
}

static char *continuation(const pairing *p, bool ended) {
    return continued(p->template, ended ? p->end : "");
}

Test(chat, prompt_answer_and_continuation_are_the_whole_conversation) {
    for (size_t i = 0; i < sizeof pairings / sizeof *pairings; i++)
        for (int ended = 0; ended < 2; ended++) {
            const pairing *p = &pairings[i];
            fv_chat *c = by_name(p->template);
            char joined[4096], *first = render(c, &question, 1), *rest = continuation(p, ended),
                               *whole = whole_text(p, ended);
            fv_chat_free(c);
            snprintf(joined, sizeof joined, "%s%s%s%s%s", first, p->lead, answer.text,
                     ended ? p->end : "", rest);
            cr_assert_str_eq(joined, whole);
            free(first);
            free(rest);
            free(whole);
        }
}

static fv_tokenizer *tokenizer(const char *name) {
    char path[4096], *json;
    size_t n;
    fv_tokenizer *tok;
    snprintf(path, sizeof path, FOVEA_TEST_DATA "/golden/tokenizer/%s.json", name);
    cr_assert_eq(fv_file_read(path, 1 << 24, &json, &n), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_tokenizer_parse(json, n, path, &tok), FV_OK, "%s", fv_last_error());
    free(json);
    return tok;
}

/* The ids of the whole, cut where the continuation begins, end with the continuation's own. */
static void check_ids(const pairing *p, bool ended) {
    fv_tokenizer *tok = tokenizer(p->tokenizer);
    char *whole = whole_text(p, ended), *rest = continuation(p, ended);
    size_t n_before = strlen(whole) - strlen(rest);
    int32_t *all, *before, *after, n_all, n_head, n_tail;
    cr_assert_eq(fv_tokenizer_encode(tok, whole, strlen(whole), true, &all, &n_all), FV_OK);
    cr_assert_eq(fv_tokenizer_encode(tok, whole, n_before, true, &before, &n_head), FV_OK);
    cr_assert_eq(fv_tokenizer_encode_after(tok, before[n_head - 1], rest, strlen(rest), NULL,
                                           &after, &n_tail),
                 FV_OK, "%s", fv_last_error());
    if (ended) cr_assert_str_eq(fv_tokenizer_special(tok, before[n_head - 1]), p->end);
    cr_assert_eq(n_head + n_tail, n_all, "%s with %s, ended %d: %d + %d ids, not %d", p->template,
                 p->tokenizer, ended, n_head, n_tail, n_all);
    cr_assert_arr_eq(before, all, sizeof *all * (size_t)n_head);
    cr_assert_arr_eq(after, all + n_head, sizeof *all * (size_t)n_tail);
    free(all);
    free(before);
    free(after);
    free(whole);
    free(rest);
    fv_tokenizer_free(tok);
}

Test(chat, ids_that_go_on_are_those_of_the_whole_conversation) {
    for (size_t i = 0; i < sizeof pairings / sizeof *pairings; i++)
        for (int ended = 0; ended < 2; ended++) check_ids(&pairings[i], ended);
}

Test(chat, another_end_than_the_templates_stays_and_the_templates_follows) {
    char *text = continued("chatml", "<|endoftext|>");
    cr_assert_eq(strncmp(text, "<|im_end|>\n<|im_start|>user\n", 27), 0, "%s", text);
    free(text);
}

/* Neither the first turn of a conversation nor its system text is written again. */
Test(chat, a_continuation_is_the_text_after_the_answer) {
    char *text =
        continued("{% for m in messages %}{% if loop.first %}<first>{% endif %}[{{ m.role }}]"
                  "{{ m.content | trim }}{% if not loop.last %}<end>{% endif %}{% endfor %}>",
                  "<end>");
    cr_assert_str_eq(text, "[user]Which of them sleeps?>");
    free(text);
    fv_chat *c = by_name("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
    fv_chat_text t;
    cr_assert_eq(fv_chat_continue(c, &next, 1, NULL, "", 0, &t), FV_EUNSUPPORTED);
    fv_chat_free(c);
}

Test(chat, a_conversation_goes_on_with_one_user_turn_without_images) {
    const fv_chat_turn bad[][2] = {{{.role = "system", .text = "s"}},
                                   {{.role = "user", .text = "q", .n_image = 1}},
                                   {{.role = "assistant", .text = "a"}}};
    fv_chat_text t;
    fv_chat *c = by_name("vicuna");
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(fv_chat_continue(c, bad[i], 1, NULL, "", 0, &t), FV_EINVAL);
        cr_assert_not_null(strstr(fv_last_error(), "one user turn"));
    }
    cr_assert_eq(fv_chat_continue(c, NULL, 0, NULL, "", 0, &t), FV_EINVAL);
    cr_assert_eq(fv_chat_continue(c, (fv_chat_turn[]){next, next}, 2, NULL, "", 0, &t), FV_EINVAL);
    fv_chat_free(c);
}

Test(chat, a_continuation_does_not_merge_tokens_across_its_start) {
    fv_tokenizer *tok = tokenizer("qwen2");
    int32_t *ids, n, letter = fv_tokenizer_id(tok, "a");
    size_t bytes;
    char *text;
    cr_assert_geq(letter, 0);
    cr_assert_eq(fv_tokenizer_encode_after(tok, letter, "nd more", 7, NULL, &ids, &n), FV_OK);
    cr_assert_eq(fv_tokenizer_decode(tok, ids, n, false, &text, &bytes), FV_OK);
    cr_assert_str_eq(text, "nd more");
    free(text);
    free(ids);
    cr_assert_eq(fv_tokenizer_encode_after(tok, letter, "", 0, NULL, &ids, &n), FV_OK);
    cr_assert_eq(n, 0);
    free(ids);
    fv_tokenizer_free(tok);
}

/* ---- special tokens that users write ---- */

/* The ids that `id` has in a text of which the bytes marked 'u' are the user's. */
static int count_id(const fv_tokenizer *tok, const char *text, const char *marks, int32_t id,
                    int32_t literal) {
    uint8_t user[256];
    int32_t *ids, n, found = 0;
    cr_assert_eq(strlen(text), strlen(marks), "%s", text);
    for (size_t i = 0; marks[i]; i++) user[i] = marks[i] == 'u';
    fv_text_marks m = {user, literal};
    cr_assert_eq(fv_tokenizer_encode_marked(tok, text, strlen(text), false, &m, &ids, &n), FV_OK);
    for (int32_t i = 0; i < n; i++) found += ids[i] == id;
    free(ids);
    return found;
}

Test(chat, a_special_token_with_a_byte_of_the_users_is_text) {
    fv_tokenizer *tok = tokenizer("llama2");
    int32_t end = fv_tokenizer_id(tok, "</s>");
    cr_assert_eq(count_id(tok, "a </s> b </s>", ".............", end, -1), 2);
    cr_assert_eq(count_id(tok, "a </s> b </s>", "uuuuuuuuu....", end, -1), 1);
    cr_assert_eq(count_id(tok, "a </s> b </s>", "uuuuuuuuuuuuu", end, -1), 0);
    cr_assert_eq(count_id(tok, "a </s> b </s>", "..u......u...", end, -1), 0);
    cr_assert_eq(count_id(tok, "a </s> b </s>", ".....u......u", end, -1), 0);
    cr_assert_eq(count_id(tok, "\xff </s> \xc3</s>", "uu....uu....", end, -1), 2);
    cr_assert_eq(count_id(tok, "\xff </s> \xc3</s>", "uuuuuuuu....", end, -1), 1);
    fv_tokenizer_free(tok);
}

/* <tool_call> is an added token that is not special: users may write it, unless it is the
 * image's. */
Test(chat, an_added_token_that_is_not_special_is_taken_from_users_too) {
    fv_tokenizer *tok = tokenizer("qwen2");
    int32_t call = fv_tokenizer_id(tok, "<tool_call>");
    cr_assert_eq(count_id(tok, "a<tool_call>", "uuuuuuuuuuuu", call, -1), 1);
    cr_assert_eq(count_id(tok, "a<tool_call>", "uuuuuuuuuuuu", call, call), 0);
    cr_assert_eq(count_id(tok, "a<tool_call>", "u...........", call, call), 1);
    fv_tokenizer_free(tok);
}

/* Tokens that are matched in the normalised text, as </s> of the first Llama tokenizers is. */
Test(chat, a_special_token_of_the_normalised_text_is_guarded_too) {
    static const char path[] = FOVEA_TEST_DATA "/golden/tokenizer/llama2.json";
    char *json;
    size_t n;
    fv_tokenizer *tok;
    cr_assert_eq(fv_file_read(path, 1 << 24, &json, &n), FV_OK, "%s", fv_last_error());
    char *at = strstr(strstr(json, "\"content\":\"</s>\""), "\"normalized\":false");
    memcpy(at, "\"normalized\":true ", 18);
    cr_assert_eq(fv_tokenizer_parse(json, n, path, &tok), FV_OK, "%s", fv_last_error());
    free(json);
    int32_t end = fv_tokenizer_id(tok, "</s>");
    cr_assert_eq(count_id(tok, "a </s> b </s>", ".............", end, -1), 2);
    cr_assert_eq(count_id(tok, "a </s> b </s>", "uuuuuuuuu....", end, -1), 1);
    cr_assert_eq(count_id(tok, "a </s> b </s>", "..u..........", end, -1), 1);
    cr_assert_eq(count_id(tok, "a </s> b </s>", "uuuuuuuuuuuuu", end, -1), 0);
    fv_tokenizer_free(tok);
    tok = tokenizer("odd-unk"); /* <fin> with a ligature, after NFKC */
    int32_t fin = -1;
    for (int32_t i = 0; i < fv_tokenizer_vocab(tok); i++)
        if (strcmp(fv_tokenizer_special(tok, i), "<\uFB01n>") == 0) fin = i;
    cr_assert_geq(fin, 0);
    cr_assert_eq(count_id(tok, "<\uFB01n> b", "uuuuuuuu", fin, -1), 0);
    cr_assert_eq(count_id(tok, "<fin> b", "uuuuuuu", fin, -1), 0);
    fv_tokenizer_free(tok);
}
