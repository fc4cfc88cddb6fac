/* text/token_mask.c, and fv_sample with a mask. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "text/sample.h"

static fv_tokenizer *tok;

static void open_tokenizer(void) {
    char *json;
    size_t n;
    cr_assert_eq(fv_file_read(FOVEA_TEST_DATA "/golden/tokenizer/llama2.json", 1 << 24, &json, &n),
                 FV_OK);
    cr_assert_eq(fv_tokenizer_parse(json, n, "llama2.json", &tok), FV_OK, "%s", fv_last_error());
    free(json);
}

static void close_tokenizer(void) { fv_tokenizer_free(tok); }

TestSuite(token_mask, .init = open_tokenizer, .fini = close_tokenizer);

enum { VOCAB = 700, EOS = 2 };

static fv_token_mask *open_mask(const fv_token_rules *r) {
    static const int32_t ending[] = {EOS, 7};
    fv_token_mask *m;
    cr_assert_eq(fv_token_rules_check(r, VOCAB), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_token_mask_open(r, tok, VOCAB, ending, 2, &m), FV_OK, "%s", fv_last_error());
    return m;
}

/* Which ids are left after the answer; returns how many. */
static int32_t left(const fv_token_rules *r, const int32_t *answer, int32_t n, bool is[VOCAB]) {
    float l[VOCAB] = {0};
    int32_t count = 0;
    fv_token_mask *m = open_mask(r);
    if (fv_token_mask_acts(m, n)) cr_assert_eq(fv_token_mask_apply(m, answer, n, l), FV_OK);
    for (int32_t i = 0; i < VOCAB; i++) {
        is[i] = l[i] == 0;
        cr_assert(is[i] || l[i] == -INFINITY);
        count += is[i];
    }
    fv_token_mask_close(m);
    return count;
}

Test(token_mask, no_rule_is_no_mask) {
    fv_token_rules none = {0};
    fv_token_mask *m = open_mask(&none);
    cr_assert_null(m);
    cr_assert(!fv_token_mask_acts(m, 0));
}

Test(token_mask, only_allowed_ids_are_left) {
    const int32_t allowed[] = {399, 0, 64, 63, 64};
    fv_token_rules r = {.allowed = allowed, .n_allowed = 5};
    bool is[VOCAB];
    cr_assert_eq(left(&r, NULL, 0, is), 4, "an id counts once");
    cr_assert(is[0] && is[63] && is[64] && is[399]);
}

Test(token_mask, nothing_ends_an_answer_before_min_tokens) {
    const int32_t answer[] = {50, 51, 52};
    fv_token_rules r = {.min_tokens = 3};
    bool is[VOCAB];
    for (int32_t n = 0; n < 3; n++) {
        cr_assert_eq(left(&r, answer, n, is), VOCAB - 2);
        cr_assert(!is[EOS] && !is[7]);
    }
    cr_assert_eq(left(&r, answer, 3, is), VOCAB);
}

Test(token_mask, the_last_token_left_is_never_forbidden) {
    const int32_t eos = EOS, both[] = {7, EOS};
    fv_token_rules r = {.min_tokens = 5, .allowed = &eos, .n_allowed = 1};
    bool is[VOCAB];
    cr_assert_eq(left(&r, NULL, 0, is), 1);
    cr_assert(is[EOS]);
    r.allowed = both;
    r.n_allowed = 2;
    cr_assert_eq(left(&r, NULL, 0, is), 1);
    cr_assert(is[7], "EOS was forbidden first");
}

Test(token_mask, a_bad_word_is_its_sequence_of_ids) {
    const char *words[] = {"hello"};
    fv_token_rules r = {.bad_word = words, .n_bad_word = 1};
    int32_t *ids, n;
    bool is[VOCAB];
    cr_assert_eq(fv_tokenizer_encode(tok, "hello", 5, false, &ids, &n), FV_OK);
    cr_assert(n > 1 && n < 20, "%d", n);
    int32_t answer[22] = {11};
    memcpy(answer + 1, ids, (size_t)n * sizeof *ids);
    cr_assert_eq(left(&r, answer, n, is), VOCAB - 1);
    cr_assert(!is[ids[n - 1]]);
    cr_assert_eq(left(&r, answer, n - 1, is), VOCAB, "its ids before the last are missing");
    answer[n - 1]++;
    cr_assert_eq(left(&r, answer, n, is), VOCAB, "another token is among them");
    free(ids);
}

Test(token_mask, a_bad_word_of_one_token_is_never_chosen) {
    const char *words[] = {"  \xE2\x96\x81", "a"};
    fv_token_rules r = {.bad_word = words, .n_bad_word = 2};
    int32_t *ids, n;
    bool is[VOCAB];
    cr_assert_eq(fv_tokenizer_encode(tok, "a", 1, false, &ids, &n), FV_OK);
    left(&r, NULL, 0, is);
    if (n == 1) cr_assert(!is[ids[0]]);
    free(ids);
}

Test(token_mask, a_bad_word_without_tokens_is_refused) {
    const char *words[] = {"   "};
    fv_token_rules r = {.bad_word = words, .n_bad_word = 1};
    fv_token_mask *m;
    cr_assert_eq(fv_token_mask_open(&r, tok, VOCAB, NULL, 0, &m), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "has no tokens"));
    cr_assert_null(m);
}

Test(token_mask, a_grammar_that_is_compiled_already_is_used) {
    const fv_grammar_spec a = {.kind = FV_GRAMMAR_REGEX, .text = "a", .n_text = 1},
                          b = {.kind = FV_GRAMMAR_REGEX, .text = "b", .n_text = 1};
    fv_grammar_result result = {0};
    bool want[VOCAB], is[VOCAB];
    cr_assert_eq(fv_grammar_prepare(&a, 0, &result), FV_OK);
    const fv_token_rules of_a = {.grammar = a}, given = {.grammar = b, .compiled = &result};
    const int32_t n = left(&of_a, NULL, 0, want);
    cr_assert_lt(n, VOCAB);
    cr_assert_eq(left(&given, NULL, 0, is), n);
    cr_assert_arr_eq(is, want, sizeof is, "the text is not compiled");
    fv_grammar_result_fini(&result);
}

Test(token_mask, rules_out_of_range_are_named) {
    static int32_t ids[FV_MAX_ALLOWED + 1];
    static char text[FV_BAD_WORD_BYTES_MAX + 2];
    const char *word = text;
    fv_token_rules r = {.allowed = ids, .n_allowed = FV_MAX_ALLOWED + 1};
    cr_assert_eq(fv_token_rules_check(&r, VOCAB), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "allowed_token_ids has 32769 ids"));
    r.n_allowed = 1;
    ids[0] = VOCAB;
    cr_assert_eq(fv_token_rules_check(&r, VOCAB), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "allowed_token_ids has the id 700"));
    r = (fv_token_rules){.stop_id = ids, .n_stop_id = FV_MAX_STOP_IDS + 1};
    cr_assert_eq(fv_token_rules_check(&r, VOCAB), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "stop_token_ids"));
    r = (fv_token_rules){.min_tokens = -1};
    cr_assert_eq(fv_token_rules_check(&r, VOCAB), FV_EINVAL);
    r = (fv_token_rules){.bad_word = &word, .n_bad_word = 1};
    cr_assert_eq(fv_token_rules_check(&r, VOCAB), FV_EINVAL, "an empty word");
    memset(text, 'x', FV_BAD_WORD_BYTES_MAX + 1);
    cr_assert_eq(fv_token_rules_check(&r, VOCAB), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "1..256 bytes"));
}

/* No way of choosing takes a forbidden token, and log-probabilities stay the model's own. */
Test(token_mask, every_way_of_sampling_obeys) {
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } ways[] = {{0, 1, 0, 0},    {1, 1, 0, 0},    {50, 1, 0, 0},      {1, 0.9f, 0, 0},
                {1, 1, 0.1f, 0}, {50, 1, 0, 300}, {50, 0.99f, 0, 50}, {1, 0, 0, 0}};
    static fv_logprob scratch[FV_SAMPLE_SCRATCH(VOCAB)];
    const int32_t allowed[] = {3, 5, EOS, 250};
    fv_token_rules r = {.min_tokens = 100, .allowed = allowed, .n_allowed = 4};
    fv_token_mask *m = open_mask(&r);
    float l[VOCAB];
    for (int32_t i = 0; i < VOCAB; i++) l[i] = (float)(i % 17) - (i == 250 ? 8.0f : 0.0f);
    l[EOS] = 30;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (uint64_t step = 0; step < 300; step++) {
            fv_sampling s = fv_sampling_default();
            fv_sampled free_choice, got;
            s.temperature = ways[w].temperature;
            s.top_p = ways[w].top_p;
            s.min_p = ways[w].min_p;
            s.top_k = ways[w].top_k;
            s.repetition_penalty = 1.5f;
            s.n_logprobs = 2;
            s.seed = step;
            (void)fv_sample(&s, m, l, VOCAB, allowed, 1, 1, step, scratch, &got);
            cr_assert(got.id == 3 || got.id == 5 || got.id == 250, "way %zu: %d", w, got.id);
            (void)fv_sample(&s, NULL, l, VOCAB, allowed, 1, 1, step, scratch, &free_choice);
            cr_assert_eq(got.top[0].id, EOS);
            cr_assert(got.top[0].logprob == free_choice.top[0].logprob);
        }
    fv_token_mask_close(m);
}
