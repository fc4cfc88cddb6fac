/* Text with images -> ids, for a family whose text around an image is tokenised with its
 * neighbours. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "kv/kv.h"
#include "prefill-worker/prompt/prompt.h"

enum { SOFT = 1102, N_TOKEN = 4 };

static fv_tokenizer *tok;
static fv_model_config cfg;
static fv_layout layout;

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void begin(void) {
    static const char path[] = FOVEA_TEST_DATA "/golden/tokenizer/gemma.json";
    char *json;
    size_t n;
    ok(fv_file_read(path, 1 << 24, &json, &n));
    ok(fv_tokenizer_parse(json, n, path, &tok));
    free(json);
    cfg = (fv_model_config){
        .has_vision = true,
        .image_token = SOFT,
        .text = {.vocab = 1200, .max_position = 4096},
        .layout = {.family = FV_LAYOUT_GEMMA3, .tile = 28, .patch = 7, .merge = 2}};
    ok(fv_layout_image(&cfg.layout, 30, 20, 1, &layout));
    cr_assert_eq(layout.n_visual, N_TOKEN);
}

static void end(void) { fv_tokenizer_free(tok); }

TestSuite(prompt, .init = begin, .fini = end);

/* The prompt has the ids of `whole`, with N_TOKEN of its image token. */
static void assert_ids(const fv_prompt *p, const char *whole, const fv_text_marks *marks) {
    int32_t *ids, n, at = 0;
    ok(fv_tokenizer_encode_marked(tok, whole, strlen(whole), true, marks, &ids, &n));
    for (int32_t i = 0; i < n; i++)
        for (int k = 0; k < (ids[i] == SOFT ? N_TOKEN : 1); k++, at++) {
            cr_assert_lt(at, p->n);
            cr_assert_eq(p->ids[at], ids[i], "id %d of '%s'", at, whole);
            cr_assert_eq(p->seg[at] == FV_SEG_VISUAL, ids[i] == SOFT);
        }
    cr_assert_eq(at, p->n);
    free(ids);
}

#define WRITTEN "\n\n<start_of_image><image_soft_token><end_of_image>\n\n"

Test(prompt, newlines_around_an_image_join_those_of_the_text) {
    fv_prompt p;
    ok(fv_prompt_make(tok, &cfg, "Look.<start_of_image>)\nWhat?", true, 1, &layout, 4096, &p));
    assert_ids(&p, "Look." WRITTEN ")\nWhat?", NULL);
    cr_assert(p.n_visual == N_TOKEN && p.n_span == 1 && p.span[0].n == N_TOKEN);
    fv_prompt_free(&p);
    ok(fv_prompt_make(tok, &cfg, "None.", true, 0, NULL, 4096, &p));
    assert_ids(&p, "None.", NULL);
    fv_prompt_free(&p);
}

Test(prompt, what_a_user_spells_is_no_image) {
    static const char before[] = "<start_of_image>",
                      asked[] = " <start_of_image><image_soft_token>";
    uint8_t user[sizeof before + sizeof asked - 2] = {0};
    char text[sizeof before + sizeof asked - 1];
    strcpy(text, before);
    strcat(text, asked);
    memset(user + sizeof before - 1, 1, sizeof asked - 1);
    fv_chat_text chat = {.text = text, .n = strlen(text), .user = user, .adds_special = true};
    fv_prompt p;
    ok(fv_prompt_make_chat(tok, &cfg, &chat, 1, &layout, 4096, &p));
    cr_assert_eq(p.n_visual, N_TOKEN);
    uint8_t moved[sizeof WRITTEN + sizeof asked] = {0};
    memset(moved + sizeof WRITTEN - 1, 1, sizeof asked - 1);
    assert_ids(&p, WRITTEN " <start_of_image><image_soft_token>",
               &(fv_text_marks){.user = moved, .literal = SOFT});
    fv_prompt_free(&p);
}

Test(prompt, text_is_cut_off_the_front_and_an_image_never) {
    static const char text[] = "one two three four.<start_of_image> five six";
    fv_prompt whole, p;
    ok(fv_prompt_make(tok, &cfg, text, true, 1, &layout, 4096, &whole));
    const int32_t first = whole.span[0].first;
    cr_assert_gt(first, 4);
    for (int32_t most = whole.n; most > whole.n - first; most--) {
        ok(fv_prompt_make(tok, &cfg, text, true, 1, &layout, 4096, &p));
        const int32_t cut = whole.n - most;
        if (fv_prompt_truncate(&p, tok, true, most) != FV_OK) {
            cr_assert(strstr(fv_last_error(), "never cut"), "%s", fv_last_error());
            cr_assert_eq(p.n, whole.n, "nothing is changed");
            cr_assert_gt(cut, 2);
            fv_prompt_free(&p);
            continue;
        }
        cr_assert_eq(p.n, most);
        cr_assert(p.n_visual == N_TOKEN && p.n_text == most - N_TOKEN);
        cr_assert_eq(p.ids[0], whole.ids[0], "the BOS stays");
        cr_assert_eq(memcmp(p.ids + 1, whole.ids + 1 + cut, (size_t)(most - 1) * sizeof *p.ids), 0);
        cr_assert_eq(p.span[0].first, first - cut);
        for (int32_t i = 0; i < p.n; i++)
            cr_assert_eq(p.seg[i] == FV_SEG_VISUAL,
                         i >= p.span[0].first && i < p.span[0].first + N_TOKEN);
        fv_prompt_free(&p);
    }
    ok(fv_prompt_make(tok, &cfg, text, true, 1, &layout, 4096, &p));
    cr_assert_eq(fv_prompt_truncate(&p, tok, true, N_TOKEN), FV_EINVAL);
    fv_prompt_free(&p);
    fv_prompt_free(&whole);
    ok(fv_prompt_make(tok, &cfg, "one two three", true, 0, NULL, 4096, &p));
    ok(fv_prompt_truncate(&p, tok, false, 1));
    cr_assert_eq(p.n, 1);
    fv_prompt_free(&p);
}

static fv_chat_text rendered(const char *text, size_t user_from) {
    const size_t n = strlen(text);
    fv_chat_text chat = {.text = strdup(text), .n = n, .user = calloc(n + 1, 1)};
    cr_assert(chat.text && chat.user);
    memset(chat.user + user_from, 1, n - user_from);
    return chat;
}

Test(prompt, a_text_ahead_of_an_image_stands_there_wherever_the_template_put_it) {
    static const char moved[] = "USER: <start_of_image><start_of_image>\n";
    const char *const ahead[] = {"<0.5 seconds>", NULL, "<2 seconds>"};
    fv_chat_text chat = rendered("USER: <start_of_image><start_of_image>\nWhat <start_of_image>?",
                                 sizeof moved - 1);
    ok(fv_prompt_put_ahead(&cfg, ahead, 3, &chat));
    cr_assert_str_eq(chat.text,
                     "USER: <0.5 seconds><start_of_image><start_of_image>\nWhat <start_of_image>?");
    cr_assert_eq(chat.n, strlen(chat.text));
    for (size_t i = 0; i < chat.n; i++)
        cr_assert_eq(chat.user[i], (i >= 6 && i < 19) || i >= sizeof moved - 1 + 13, "%zu", i);
    free(chat.text);
    free(chat.user);
}

Test(prompt, without_texts_ahead_nothing_changes) {
    const char *const ahead[] = {NULL, ""};
    fv_chat_text chat = rendered("<start_of_image>", 16);
    ok(fv_prompt_put_ahead(&cfg, ahead, 2, &chat));
    ok(fv_prompt_put_ahead(&cfg, NULL, 0, &chat));
    cr_assert_str_eq(chat.text, "<start_of_image>");
    free(chat.text);
    free(chat.user);
}

Test(prompt, text_can_be_taken_for_an_image) {
    fv_prompt p = {0};
    ok(fv_prompt_make(tok, &cfg, "one two three four", true, 0, NULL, 4096, &p));
    const int32_t n = p.n;
    cr_assert_gt(n, 3);
    ok(fv_prompt_mark_visual(&p, 1, 2));
    cr_assert(p.n == n && p.n_visual == 2 && p.n_text == n - 2 && p.n_span == 1);
    cr_assert(p.span[0].first == 1 && p.span[0].n == 2 && p.span[0].w == 2);
    for (int32_t i = 0; i < n; i++)
        cr_assert_eq(p.seg[i], i == 1 || i == 2 ? FV_SEG_VISUAL : FV_SEG_TEXT);
    cr_assert_eq(fv_prompt_mark_visual(&p, 1, 2), FV_EINVAL, "it has some already");
    fv_prompt_free(&p);
    ok(fv_prompt_make(tok, &cfg, "one two three four", true, 0, NULL, 4096, &p));
    cr_assert_eq(fv_prompt_mark_visual(&p, n - 1, 2), FV_EINVAL);
    cr_assert_eq(fv_prompt_mark_visual(&p, -1, 2), FV_EINVAL);
    cr_assert_eq(fv_prompt_mark_visual(&p, 1, 0), FV_EINVAL);
    fv_prompt_free(&p);
}
