/* text/chat: renderings held against transformers' (golden files, tests/parity/chat_golden.py),
 * recognition of templates, and turns that make no sense. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "model/config.h"
#include "tests/support/tensor_file.h"
#include "text/chat.h"
#include "text/tokenizer.h"

static const char golden[] = FOVEA_TEST_DATA "/golden/chat";

static fv_chat_template by_name(const char *name) {
    fv_chat_template t;
    cr_assert_eq(fv_chat_by_name(name, &t), FV_OK, "%s", fv_last_error());
    return t;
}

static void expect(const json_t *c) {
    fv_chat_turn turns[16];
    const json_t *list = json_object_get(c, "turns");
    int32_t n = (int32_t)json_array_size(list);
    cr_assert_leq(n, 16);
    for (int32_t i = 0; i < n; i++) {
        const json_t *t = json_array_get(list, (size_t)i);
        turns[i].role = json_string_value(json_object_get(t, "role"));
        turns[i].text = json_string_value(json_object_get(t, "text"));
        turns[i].n_image = (int32_t)json_integer_value(json_object_get(t, "n_image"));
    }
    char *text = NULL;
    fv_chat_template t = by_name(json_string_value(json_object_get(c, "template")));
    cr_assert_eq(fv_chat_render(t, turns, n, &text), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(text, json_string_value(json_object_get(c, "rendered")));
    free(text);
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

Test(chat, names_go_both_ways) {
    for (int t = 0; t < FV_N_CHAT; t++)
        cr_assert_eq(by_name(fv_chat_name((fv_chat_template)t)), (fv_chat_template)t);
    fv_chat_template t;
    cr_assert_eq(fv_chat_by_name("alpaca", &t), FV_EINVAL);
    cr_assert_not_null(
        strstr(fv_last_error(), "unknown chat template 'alpaca'; available: vicuna, llava"));
}

/* ---- recognition ---- */

static fv_model_config config_of(const char *family, bool has_vision) {
    fv_model_config cfg = {.has_vision = has_vision};
    strcpy(cfg.text.family, family);
    return cfg;
}

static fv_chat_template detect(const char *dir, const char *family, bool has_vision) {
    fv_model_config cfg = config_of(family, has_vision);
    fv_chat_template t = FV_N_CHAT;
    cr_assert_eq(fv_chat_detect(dir, cfg.text.family, cfg.has_vision, &t), FV_OK, "%s",
                 fv_last_error());
    return t;
}

/* {"chat_template": <text>} */
static void write_json_template(const char *dir, const char *name, const char *text) {
    json_t *j = json_pack("{s:s}", "chat_template", text);
    char *out = json_dumps(j, 0);
    write_text(dir, name, out);
    free(out);
    json_decref(j);
}

static char *golden_template(const char *name) {
    char path[4096], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s.jinja", golden, name);
    cr_assert_eq(fv_file_read(path, 1 << 20, &text, &n), FV_OK, "%s", fv_last_error());
    return text;
}

Test(chat, every_template_is_recognised_in_every_file) {
    static const char *const names[] = {"llava", "vicuna", "chatml", "mistral"};
    static const char *const files[] = {"chat_template.jinja", "chat_template.json",
                                        "processor_config.json", "tokenizer_config.json"};
    for (size_t i = 0; i < 4; i++) {
        char *text = golden_template(names[i]);
        for (size_t k = 0; k < 4; k++) {
            char dir[4096];
            scratch_dir(dir, sizeof dir);
            if (k == 0)
                write_text(dir, files[k], text);
            else
                write_json_template(dir, files[k], text);
            cr_assert_eq(detect(dir, "llama", true), by_name(names[i]), "%s in %s", names[i],
                         files[k]);
        }
        free(text);
    }
}

Test(chat, the_jinja_file_wins_over_the_others) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    char *llava = golden_template("llava"), *chatml = golden_template("chatml");
    write_json_template(dir, "tokenizer_config.json", chatml);
    cr_assert_eq(detect(dir, "llama", true), FV_CHAT_CHATML);
    write_json_template(dir, "chat_template.json", "no template of ours");
    write_text(dir, "chat_template.jinja", llava);
    cr_assert_eq(detect(dir, "llama", true), FV_CHAT_LLAVA_HF);
    free(llava);
    free(chatml);
}

Test(chat, the_small_checkpoint_has_the_form_of_vicuna) {
    cr_assert_eq(detect(FOVEA_TEST_DATA "/../checkpoints/nano", "llama", true), FV_CHAT_VICUNA);
}

Test(chat, spelling_does_not_matter) {
    static const char *const spelled[] = {
        "{% for message in messages %}{{ \"<|im_start|>\"+ message[\"role\"]   +\"\\n\" }}"
        "{%for content in message['content']|selectattr('type','equalto',\"image\")%}"
        "{{'<image>\\n'}}{% endfor %}{# then the text #}"
        "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
        "{{ content['text'] }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ \n '<|im_start|>assistant\\n' }}{% endif %}\n"};
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
        char dir[4096];
        scratch_dir(dir, sizeof dir);
        write_text(dir, "chat_template.jinja", spelled[i]);
        cr_assert_eq(detect(dir, "llama", true), FV_CHAT_CHATML);
    }
}

/* A turn that is one string has no place for an image. */
Test(chat, a_template_of_text_models_is_known_for_text_models) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "chat_template.jinja",
               "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
               "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
    cr_assert_eq(detect(dir, "qwen2", false), FV_CHAT_CHATML);
    fv_model_config cfg = config_of("qwen2", true);
    fv_chat_template t;
    cr_assert_eq(fv_chat_detect(dir, cfg.text.family, cfg.has_vision, &t), FV_EUNSUPPORTED);
}

Test(chat, the_default_of_a_list_of_templates_counts) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    char *mistral = golden_template("mistral");
    json_t *j = json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "chat_template", "name", "tool_use",
                          "template", "{{ tools }}", "name", "default", "template", mistral);
    char *out = json_dumps(j, 0);
    write_text(dir, "tokenizer_config.json", out);
    cr_assert_eq(detect(dir, "llama", true), FV_CHAT_MISTRAL);
    free(out);
    json_decref(j);
    free(mistral);
}

Test(chat, without_a_template_the_text_family_decides) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": null}");
    cr_assert_eq(detect(dir, "llama", true), FV_CHAT_VICUNA);
    cr_assert_eq(detect(dir, "mistral", true), FV_CHAT_MISTRAL);
    cr_assert_eq(detect(dir, "qwen2", true), FV_CHAT_CHATML);
    cr_assert_eq(detect(dir, "llama", false), FV_CHAT_NONE);
}

static void refuse_template(const char *text, const char *what) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "chat_template.jinja", text);
    fv_model_config cfg = config_of("llama", true);
    fv_chat_template t;
    cr_assert_eq(fv_chat_detect(dir, cfg.text.family, cfg.has_vision, &t), FV_EUNSUPPORTED,
                 "%s: accepted: %s", what, text);
    cr_assert_not_null(strstr(fv_last_error(), "chat_template.jinja: "));
    cr_assert_not_null(strstr(fv_last_error(), "--chat"));
    cr_assert_not_null(strstr(fv_last_error(), "--raw"));
}

/* Replaces the first `was` by `is`; the template has one. */
static char *altered(const char *text, const char *was, const char *is) {
    const char *at = strstr(text, was);
    cr_assert_not_null(at, "no %s in %s", was, text);
    size_t cap = strlen(text) + strlen(is) + 1;
    char *out = malloc(cap);
    cr_assert(out);
    snprintf(out, cap, "%.*s%s%s", (int)(at - text), text, is, at + strlen(was));
    return out;
}

/* Each renders another prompt than the template that it is made from, on some conversation. */
Test(chat, altered_templates_are_refused) {
    static const struct {
        const char *from, *was, *is;
    } changes[] = {
        {"llava", "{% for", "{{ 'A chat between a human and an assistant. ' }}{% for"},
        {"llava", "{% for", "Be brief. {% for"},
        {"llava", "content['text'] + ' '", "content['text'] | trim + ' '"},
        {"llava", "'ASSISTANT:'", "'ASSISTANT: Sure,'"},
        {"llava", "'ASSISTANT:'", "'ASSISTANT:' + eos_token"},
        {"llava", "message['role'] != 'system'", "message['role'] == 'user'"},
        {"llava", "'image'", "'text'"},
        {"llava", "'<image>\\n'", "'<image>'"},
        {"llava", "{% for message in messages %}", "{% for message in messages[1:] %}"},
        {"llava", "{{ 'ASSISTANT:' }}", " {{ 'ASSISTANT:' }}"},
        {"llava", "{# Render all images first #}", "{#- Render all images first -#} "},
        {"llava", "{% if add_generation_prompt %}",
         "{{ bos_token }}{% if add_generation_prompt %}"},
        {"vicuna", "{% for", "{{ bos_token }}{% for"},
        {"vicuna", "eos_token", "'<|end|>'"},
        {"vicuna", "'USER: '", "'USER:'"},
        {"vicuna", "content['text']", "content['text'].strip()"},
        {"vicuna", "{{ ' ' }}", "{{ '' }}"},
        {"vicuna", "{% if message['role'] == 'assistant' %}{{ eos_token }}",
         "{% if loop.last %}{{ eos_token }}"},
        {"chatml", "{% for",
         "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful "
         "assistant.<|im_end|>\\n' }}{% endif %}{% for"},
        {"chatml", "'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n<think>\\n'"},
        {"chatml", "'<|im_end|>\\n'", "'<|im_end|>'"},
        {"chatml", "{{ content['text'] }}", "{{ content['text'] | upper }}"},
        {"mistral", "'[INST] '", "bos_token + '[INST] '"},
        {"mistral", "'</s> '", "'<\\s> '"},
        {"mistral", "'</s> '", "eos_token"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *text = golden_template(changes[i].from);
        char *other = altered(text, changes[i].was, changes[i].is);
        refuse_template(other, changes[i].from);
        free(other);
        free(text);
    }
}

Test(chat, an_image_behind_the_text_is_refused) {
    refuse_template(
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
        "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
        "{{ content['text'] }}{% endfor %}"
        "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
        "{{ '<image>\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "chatml");
}

Test(chat, what_is_no_template_of_ours_is_refused_with_a_way_on) {
    static const char *const others[] = {
        "", "\n", "{{ messages }}", "{% for message in messages", "{{ 'no end }}", "{# no end",
        /* another order of newlines, as llava-interleave-qwen has */
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
        "{{ '<image>' }}{{ '\\n' + content['text'] }}{{'<|im_end|>'}}{% endfor %}"
        "{{ '<|im_start|>assistant\\n' }}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) refuse_template(others[i], "other");
}

Test(chat, a_list_of_templates_without_a_default_is_refused) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"{{ x }}\"}]}");
    fv_model_config cfg = config_of("llama", true);
    fv_chat_template t;
    cr_assert_eq(fv_chat_detect(dir, cfg.text.family, cfg.has_vision, &t), FV_EUNSUPPORTED);
}

Test(chat, a_template_with_eos_token_is_known_with_its_own_only) {
    static const struct {
        const char *config;
        bool known;
    } configs[] = {{"{\"eos_token\": \"</s>\"}", true},
                   {"{\"eos_token\": {\"content\": \"</s>\"}}", true},
                   {"{}", true},
                   {"{\"eos_token\": \"<|end|>\"}", false},
                   {"{\"eos_token\": {\"content\": \"<|end|>\"}}", false}};
    char *text = golden_template("vicuna");
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char dir[4096];
        scratch_dir(dir, sizeof dir);
        write_text(dir, "chat_template.jinja", text);
        write_text(dir, "tokenizer_config.json", configs[i].config);
        fv_model_config cfg = config_of("llama", true);
        fv_chat_template t;
        fv_status want = configs[i].known ? FV_OK : FV_EUNSUPPORTED;
        cr_assert_eq(fv_chat_detect(dir, cfg.text.family, cfg.has_vision, &t), want, "%s",
                     configs[i].config);
        if (!configs[i].known) cr_assert_not_null(strstr(fv_last_error(), "which is '<|end|>'"));
    }
    free(text);
}

Test(chat, a_broken_config_file_is_named) {
    char dir[4096];
    scratch_dir(dir, sizeof dir);
    write_text(dir, "tokenizer_config.json", "{\"chat_template\":");
    fv_model_config cfg = config_of("llama", true);
    fv_chat_template t;
    cr_assert_eq(fv_chat_detect(dir, cfg.text.family, cfg.has_vision, &t), FV_EDATA);
    cr_assert_not_null(strstr(fv_last_error(), "tokenizer_config.json: not valid JSON"));
}

/* ---- turns ---- */

static void refuse(fv_chat_template t, const fv_chat_turn *turns, int32_t n, const char *words) {
    char *text = NULL;
    cr_assert_eq(fv_chat_render(t, turns, n, &text), FV_EINVAL);
    cr_assert_null(text);
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

Test(chat, turns_out_of_order_are_refused) {
    const fv_chat_turn u = {"user", "q", 0}, a = {"assistant", "a", 0}, s = {"system", "s", 0};
    const fv_chat_turn x = {"tool", "x", 0};
    refuse(FV_CHAT_LLAVA_HF, NULL, 0, "the last turn must be the user's");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){s}, 1, "the last turn must be the user's");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){u, a}, 2, "the last turn must be the user's");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){a, u}, 2, "turn 0 (assistant) is out of order");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){u, u}, 2, "turn 1 (user) is out of order");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){u, s, u}, 3, "turn 1 (system) is out of order");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){s, a, u}, 3, "turn 1 (assistant) is out of order");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){u, a, a, u}, 4, "turn 2 (assistant)");
    refuse(FV_CHAT_LLAVA_HF, (fv_chat_turn[]){x}, 1, "turn 0 has role 'tool'");
}

Test(chat, images_belong_to_user_turns) {
    refuse(FV_CHAT_VICUNA, (fv_chat_turn[]){{"system", "s", 1}, {"user", "q", 0}}, 2,
           "turn 0 (system) has 1 images");
    refuse(FV_CHAT_VICUNA, (fv_chat_turn[]){{"user", "q", -1}}, 1, "has -1 images");
    refuse(FV_CHAT_VICUNA, (fv_chat_turn[]){{"user", "q", 1025}}, 1, "has 1025 images");
}

Test(chat, images_stand_where_turns_place_them_and_nowhere_else) {
    const fv_chat_turn turns[] = {{"user", "<image> is a tag", 2},
                                  {"assistant", "<image>?", 0},
                                  {"user", "no, <image>\n", 1}};
    char *text;
    size_t *at;
    int32_t n;
    cr_assert_eq(fv_chat_render_at(FV_CHAT_VICUNA, turns, 3, &text, &at, &n), FV_OK);
    cr_assert_eq(n, 3);
    const char *first = strstr(text, "<image>"), *second = strstr(first + 1, "<image>");
    cr_assert_eq(at[0], (size_t)(first - text));
    cr_assert_eq(at[1], (size_t)(second - text));
    cr_assert_eq(strncmp(text + at[2], "<image>\nno, <image>", 19), 0, "%s", text + at[2]);
    free(text);
    free(at);
}

Test(chat, a_last_turn_without_text_and_image_is_no_question) {
    const fv_chat_turn blank = {"user", " \n", 0}, image = {"user", "", 1};
    cr_assert_eq(fv_chat_check_question(&blank, 1), FV_EINVAL);
    cr_assert_eq(fv_chat_check_question(&image, 1), FV_OK);
}

Test(chat, none_passes_the_text_through) {
    char *text = NULL;
    const fv_chat_turn raw = {"user", "as <image> written", 0};
    cr_assert_eq(fv_chat_render(FV_CHAT_NONE, &raw, 1, &text), FV_OK);
    cr_assert_str_eq(text, "as <image> written");
    free(text);
    const fv_chat_turn two[] = {{"system", "s", 0}, {"user", "q", 0}};
    refuse(FV_CHAT_NONE, two, 2, "one user turn, not 2 turns");
}

/* ---- going on behind an answer ---- */

/* A template, a tokenizer that goes with it, what it writes before and behind an answer. */
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

static const fv_chat_turn question = {"user", "What is in the picture?", 0},
                          answer = {"assistant", "Two cats, and a dog.", 0},
                          next = {"user", "Which of them sleeps?", 0};

/* The whole conversation as one text; the answer has ended by itself or was cut off. Where the
 * template has no end of its own for an answer, what the model said stays. */
static char *whole_text(const pairing *p, bool ended) {
    fv_chat_template t = by_name(p->template);
    char *text;
    if (t == FV_CHAT_NONE || (t == FV_CHAT_LLAVA_HF && ended)) {
        char *first, *second;
        size_t cap = 4096;
        cr_assert_eq(fv_chat_render(t, &question, 1, &first), FV_OK);
        cr_assert_eq(fv_chat_render(t, &next, 1, &second), FV_OK);
        text = malloc(cap);
        cr_assert(text);
        snprintf(text, cap, "%s%s%s%s%s%s", first, p->lead, answer.text, ended ? p->end : "",
                 t == FV_CHAT_LLAVA_HF ? " " : "", second);
        free(first);
        free(second);
        return text;
    }
    cr_assert_eq(fv_chat_render(t, (fv_chat_turn[]){question, answer, next}, 3, &text), FV_OK);
    return text;
}

static char *continuation(const pairing *p, bool ended) {
    char *text;
    cr_assert_eq(fv_chat_continue(by_name(p->template), &next, 1, ended ? p->end : "", &text),
                 FV_OK, "%s", fv_last_error());
    return text;
}

Test(chat, prompt_answer_and_continuation_are_the_whole_conversation) {
    for (size_t i = 0; i < sizeof pairings / sizeof *pairings; i++)
        for (int ended = 0; ended < 2; ended++) {
            const pairing *p = &pairings[i];
            char joined[4096], *first, *rest = continuation(p, ended),
                                       *whole = whole_text(p, ended);
            cr_assert_eq(fv_chat_render(by_name(p->template), &question, 1, &first), FV_OK);
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

/* The ids of the whole, cut where the continuation begins, end as the continuation's own do. */
static void check_ids(const pairing *p, bool ended) {
    fv_tokenizer *tok = tokenizer(p->tokenizer);
    char *whole = whole_text(p, ended), *rest = continuation(p, ended);
    size_t n_before = strlen(whole) - strlen(rest);
    int32_t *all, *before, *behind, n_all, n_head, n_tail;
    cr_assert_eq(fv_tokenizer_encode(tok, whole, strlen(whole), true, &all, &n_all), FV_OK);
    cr_assert_eq(fv_tokenizer_encode(tok, whole, n_before, true, &before, &n_head), FV_OK);
    cr_assert_eq(
        fv_tokenizer_encode_behind(tok, before[n_head - 1], rest, strlen(rest), &behind, &n_tail),
        FV_OK, "%s", fv_last_error());
    if (ended) cr_assert_str_eq(fv_tokenizer_special(tok, before[n_head - 1]), p->end);
    cr_assert_eq(n_head + n_tail, n_all, "%s with %s, ended %d: %d + %d ids, not %d", p->template,
                 p->tokenizer, ended, n_head, n_tail, n_all);
    cr_assert_arr_eq(before, all, sizeof *all * (size_t)n_head);
    cr_assert_arr_eq(behind, all + n_head, sizeof *all * (size_t)n_tail);
    free(all);
    free(before);
    free(behind);
    free(whole);
    free(rest);
    fv_tokenizer_free(tok);
}

Test(chat, ids_that_go_on_are_those_of_the_whole_conversation) {
    for (size_t i = 0; i < sizeof pairings / sizeof *pairings; i++)
        for (int ended = 0; ended < 2; ended++) check_ids(&pairings[i], ended);
}

Test(chat, another_end_than_the_templates_stays_and_the_templates_follows) {
    char *text;
    cr_assert_eq(fv_chat_continue(FV_CHAT_CHATML, &next, 1, "<|endoftext|>", &text), FV_OK);
    cr_assert_eq(strncmp(text, "<|im_end|>\n<|im_start|>user\n", 27), 0, "%s", text);
    free(text);
}

Test(chat, a_conversation_goes_on_with_one_user_turn_without_images) {
    const fv_chat_turn bad[][2] = {
        {{"system", "s", 0}}, {{"user", "q", 1}}, {{"assistant", "a", 0}}};
    char *text = NULL;
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(fv_chat_continue(FV_CHAT_VICUNA, bad[i], 1, "", &text), FV_EINVAL);
        cr_assert_not_null(strstr(fv_last_error(), "one user turn"));
    }
    cr_assert_eq(fv_chat_continue(FV_CHAT_VICUNA, NULL, 0, "", &text), FV_EINVAL);
    cr_assert_eq(fv_chat_continue(FV_CHAT_VICUNA, (fv_chat_turn[]){next, next}, 2, "", &text),
                 FV_EINVAL);
}

Test(chat, a_word_cut_at_the_border_is_not_healed_and_nothing_is_put_before_it) {
    fv_tokenizer *tok = tokenizer("qwen2");
    int32_t *ids, n, letter = fv_tokenizer_id(tok, "a");
    size_t bytes;
    char *text;
    cr_assert_geq(letter, 0);
    cr_assert_eq(fv_tokenizer_encode_behind(tok, letter, "nd more", 7, &ids, &n), FV_OK);
    cr_assert_eq(fv_tokenizer_decode(tok, ids, n, false, &text, &bytes), FV_OK);
    cr_assert_str_eq(text, "nd more");
    free(text);
    free(ids);
    cr_assert_eq(fv_tokenizer_encode_behind(tok, letter, "", 0, &ids, &n), FV_OK);
    cr_assert_eq(n, 0);
    free(ids);
    fv_tokenizer_free(tok);
}

/* </s> is an added token; a text may spell it. */
static void check_places(const fv_tokenizer *tok, const char *text, const size_t *at, int32_t n_at,
                         int32_t expected) {
    int32_t end = fv_tokenizer_id(tok, "</s>"), *ids, n, found = 0;
    fv_token_places places = {.id = end, .at = at, .n = n_at};
    cr_assert_eq(fv_tokenizer_encode_at(tok, text, strlen(text), true, &places, &ids, &n), FV_OK);
    for (int32_t i = 0; i < n; i++) found += ids[i] == end;
    cr_assert_eq(found, expected, "%s", text);
    free(ids);
}

Test(chat, an_added_token_is_taken_at_its_places_only) {
    fv_tokenizer *tok = tokenizer("llama2");
    static const char text[] = "a </s> b </s></s> c";
    check_places(tok, text, NULL, 0, 0);
    check_places(tok, text, (size_t[]){2}, 1, 1);
    check_places(tok, text, (size_t[]){9, 13}, 2, 2);
    check_places(tok, text, (size_t[]){3, 13}, 2, 1);             /* none begins at 3 */
    check_places(tok, "\xff </s> \xc3</s>", (size_t[]){8}, 1, 1); /* bad bytes grow */
    check_places(tok, "\xff </s> \xc3</s>", (size_t[]){2, 8}, 2, 2);
    fv_tokenizer_free(tok);
}
