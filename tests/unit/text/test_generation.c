/* text/generation.c: what ends an answer, and which text it has. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/llama_tokenizer.h"
#include "text/generation.h"

TestSuite(generation, .init = open_tokenizer, .fini = close_tokenizer);

enum { VOCAB = 700, EOS = 2 };
static const int32_t eos = EOS, prompt[] = {1, 600};

static fv_generation_options options(void) {
    return (fv_generation_options){.sampling = fv_sampling_default(),
                                   .max_tokens = 100,
                                   .context = 4096,
                                   .n_vocab = VOCAB,
                                   .n_eos = 1,
                                   .eos = &eos};
}

/* The id of a token. */
static int32_t id_of(const char *token) {
    int32_t id = fv_tokenizer_id(tok, token);
    cr_assert(id >= 0 && id < VOCAB, "%s is %d", token, id);
    return id;
}

typedef struct answer {
    char text[256];
    int32_t ids[32], n;
    uint32_t offset[32];
    fv_finish finish;
} answer;

/* Offers ids one after the other as the likeliest, until the answer ends. */
static answer answer_of(const fv_generation_options *opt, const int32_t *ids, int32_t n) {
    answer a = {0};
    fv_generation *s;
    cr_assert_eq(fv_generation_open(opt, tok, prompt, 2, 2, &s), FV_OK, "%s", fv_last_error());
    for (int32_t i = 0; i < n && a.finish == FV_FINISH_NOT; i++) {
        float logits[VOCAB] = {0};
        const fv_sampled *token;
        const char *text;
        size_t n_text;
        logits[ids[i]] = 9;
        cr_assert_eq(fv_generation_take(s, logits, &token, &text, &n_text), FV_OK);
        strncat(a.text, text, n_text);
        a.offset[a.n] = token->text_offset;
        a.ids[a.n++] = token->id;
        a.finish = fv_generation_finish(s);
    }
    fv_generation_close(s);
    return a;
}

Test(generation, a_stop_id_ends_the_answer_without_text) {
    const int32_t ids[] = {id_of("a"), id_of("b"), id_of("c")};
    fv_generation_options opt = options();
    opt.rules = (fv_token_rules){.stop_id = &ids[1], .n_stop_id = 1};
    answer a = answer_of(&opt, ids, 3);
    cr_assert_eq(a.n, 2, "the id is a token of the answer");
    cr_assert_eq(a.finish, FV_FINISH_EOS);
    cr_assert_str_eq(a.text, "a");
    opt.n_eos = 0; /* ignore_eos */
    cr_assert_eq(answer_of(&opt, ids, 3).n, 2);
    opt.include_stop = true;
    cr_assert_str_eq(answer_of(&opt, ids, 3).text, "ab");
}

Test(generation, min_tokens_come_before_any_end) {
    const int32_t ids[] = {id_of("a"), EOS, id_of("b"), id_of("c"), EOS};
    const char *stop = "b";
    fv_generation_options opt = options();
    opt.rules.min_tokens = 3;
    answer a = answer_of(&opt, ids, 5);
    cr_assert_eq(a.n, 5);
    cr_assert_neq(a.ids[1], EOS);
    cr_assert_eq(a.finish, FV_FINISH_EOS);
    opt.stop = &stop;
    opt.n_stop = 1;
    a = answer_of(&opt, ids, 5);
    cr_assert_eq(a.n, 5, "the third token's text ends nothing");
    opt.rules.min_tokens = 2;
    a = answer_of(&opt, ids, 5);
    cr_assert_eq(a.n, 3);
    cr_assert_eq(a.finish, FV_FINISH_STOP);
}

Test(generation, special_tokens_are_shown_if_asked_for) {
    const int32_t ids[] = {id_of("a"), id_of("<s>"), id_of("b"), EOS};
    fv_generation_options opt = options();
    cr_assert_str_eq(answer_of(&opt, ids, 4).text, "ab");
    opt.show_special = true;
    cr_assert_str_eq(answer_of(&opt, ids, 4).text, "a<s>b");
    opt.include_stop = true;
    answer a = answer_of(&opt, ids, 4);
    cr_assert_str_eq(a.text, "a<s>b</s>");
    cr_assert_eq(a.finish, FV_FINISH_EOS);
}

Test(generation, a_stop_string_is_included_if_asked_for) {
    const int32_t ids[] = {id_of("a"), id_of("b"), id_of("c")};
    const char *stop = "b";
    fv_generation_options opt = options();
    opt.stop = &stop;
    opt.n_stop = 1;
    cr_assert_str_eq(answer_of(&opt, ids, 3).text, "a");
    opt.include_stop = true;
    cr_assert_str_eq(answer_of(&opt, ids, 3).text, "ab");
}

Test(generation, a_text_that_continues_the_prompt_keeps_its_first_space) {
    const int32_t ids[] = {id_of("\xE2\x96\x81"), id_of("a"), EOS};
    fv_generation_options opt = options();
    cr_assert_str_eq(answer_of(&opt, ids, 3).text, "a");
    opt.continue_text = true;
    answer a = answer_of(&opt, ids, 3);
    cr_assert_str_eq(a.text, " a");
    cr_assert(a.offset[0] == 0 && a.offset[1] == 1);
}

Test(generation, offsets_count_characters_of_the_text) {
    /* The decoder cuts the first space; an umlaut of two byte tokens is one character. */
    const int32_t ids[] = {id_of("\xE2\x96\x81"), id_of("a"), id_of("<s>"), id_of("<0xC3>"),
                           id_of("<0xA4>"),       id_of("b"), EOS};
    const uint32_t offsets[] = {0, 0, 1, 1, 1, 2, 3};
    fv_generation_options opt = options();
    answer a = answer_of(&opt, ids, 7);
    cr_assert_str_eq(a.text, "a\xC3\xA4"
                             "b");
    cr_assert_eq(a.n, 7);
    for (int i = 0; i < 7; i++) cr_assert_eq(a.offset[i], offsets[i], "%d: %u", i, a.offset[i]);
}

/* An answer that is continued elsewhere after any of its tokens goes on as if it had not been. */
Test(generation, rules_are_the_same_after_a_replay) {
    const int32_t ids[] = {id_of("a"), EOS, id_of("b"), id_of("c"), id_of("a"), id_of("b"), EOS};
    const char *words[] = {"ca"}, *stop = "bc";
    const int32_t stop_id = id_of("d");
    fv_generation_options opt = options();
    opt.rules = (fv_token_rules){
        .min_tokens = 4, .bad_word = words, .n_bad_word = 1, .stop_id = &stop_id, .n_stop_id = 1};
    opt.stop = &stop;
    opt.n_stop = 1;
    answer whole = answer_of(&opt, ids, 7);
    for (int32_t cut = 1; cut < whole.n; cut++) {
        int32_t known[16] = {prompt[0], prompt[1]};
        fv_generation *s;
        memcpy(known + 2, whole.ids, (size_t)cut * sizeof *known);
        cr_assert_eq(fv_generation_open(&opt, tok, known, cut + 2, 2, &s), FV_OK);
        for (int32_t i = cut; i < whole.n; i++) {
            float logits[VOCAB] = {0};
            const fv_sampled *token;
            const char *text;
            size_t n_text;
            logits[ids[i]] = 9;
            cr_assert_eq(fv_generation_take(s, logits, &token, &text, &n_text), FV_OK);
            cr_assert_eq(token->id, whole.ids[i], "cut %d, token %d", cut, i);
            cr_assert_eq(token->text_offset, whole.offset[i]);
        }
        cr_assert_eq(fv_generation_finish(s), whole.finish);
        fv_generation_close(s);
    }
}
