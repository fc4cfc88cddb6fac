/* text/token_trie.c, and masks with grammars (text/token_mask.c), over the vocabularies of the golden tokenizers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "text/generation.h"

static const char *const files[] = {"deepseek",        "gemma", "gpt2",  "llama2",  "llama3",
                                    "metaspace-first", "o200k", "qwen2", "smollm2", "tekken"};
enum { N_FILE = sizeof files / sizeof *files };

static fv_tokenizer *open_tokenizer(const char *name) {
    char path[512], *json;
    size_t n;
    fv_tokenizer *tok;
    snprintf(path, sizeof path, FOVEA_TEST_DATA "/golden/tokenizer/%s.json", name);
    cr_assert_eq(fv_file_read(path, 1 << 26, &json, &n), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_tokenizer_parse(json, n, path, &tok), FV_OK, "%s", fv_last_error());
    free(json);
    return tok;
}

static const char schema[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
                             "\"n\":{\"type\":\"integer\"},"
                             "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\","
                             "\"gr\xC3\xBCn\"]}}},\"required\":[\"name\",\"n\"]}";
static const char *const texts[] = {
    "{\"name\":\"a\",\"n\":1}",
    "{\"name\": \"Zo\xC3\xAB \xF0\x9F\x98\x80 \\\"x\\\"\", \"n\": -120, \"tags\": [\"red\", "
    "\"gr\xC3\xBCn\"]}",
    "{\n  \"name\": \"\xE4\xBD\xA0\xE5\xA5\xBD, the quick brown fox\",\n  \"n\": 1234567\n}"};

static fv_token_rules rules_of(fv_grammar_kind kind, const char *text) {
    return (fv_token_rules){.grammar = {.kind = kind, .text = text, .n_text = strlen(text)}};
}

static int32_t eos_of(const fv_tokenizer *tok) {
    for (int32_t i = 0; i < fv_tokenizer_vocab(tok); i++)
        if (fv_tokenizer_is_special(tok, i)) return i;
    cr_assert_fail("no special token");
    return -1;
}

static bool legal(fv_token_mask *m, const int32_t *answer, int32_t n, float *l, int32_t vocab,
                  int32_t id) {
    memset(l, 0, (size_t)vocab * sizeof *l);
    cr_assert_eq(fv_token_mask_apply(m, answer, n, l), FV_OK, "%s", fv_last_error());
    return l[id] == 0;
}

/* The tokenizer's own tokens, and others: each token cut into single characters, as far as there are tokens for them. */
Test(token_trie, texts_of_a_schema_are_accepted_token_by_token) {
    for (int f = 0; f < N_FILE; f++) {
        fv_tokenizer *tok = open_tokenizer(files[f]);
        const int32_t vocab = fv_tokenizer_vocab(tok), eos = eos_of(tok);
        float *l = malloc((size_t)vocab * sizeof *l);
        const fv_token_rules r = rules_of(FV_GRAMMAR_JSON_SCHEMA, schema);
        fv_token_mask *m;
        cr_assert_eq(fv_token_mask_open(&r, tok, vocab, &eos, 1, &m), FV_OK, "%s", fv_last_error());
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
            for (size_t step = 0; step < 3; step++) {
                int32_t answer[512], n = 0;
                const size_t n_text = strlen(texts[t]);
                const size_t piece = step == 0 ? n_text : step == 1 ? 5 : 1;
                for (size_t at = 0, len; at < n_text; at += len) {
                    int32_t *ids, n_ids;
                    len = n_text - at < piece ? n_text - at : piece;
                    while (at + len < n_text && (texts[t][at + len] & 0xC0) == 0x80) len++;
                    cr_assert_eq(fv_tokenizer_encode_after(tok, n ? answer[n - 1] : eos,
                                                           texts[t] + at, len, NULL, &ids, &n_ids),
                                 FV_OK);
                    for (int32_t i = 0; i < n_ids; i++) {
                        cr_assert(legal(m, answer, n, l, vocab, ids[i]), "%s: token %d of %s",
                                  files[f], n, texts[t]);
                        cr_assert(l[eos] != 0, "the answer may not end yet");
                        answer[n++] = ids[i];
                    }
                    free(ids);
                }
                cr_assert(legal(m, answer, n, l, vocab, eos), "%s: it may end", files[f]);
            }
        fv_token_mask_close(m);
        free(l);
        fv_tokenizer_free(tok);
    }
}

/* In pieces of any size, so that tokens cut the marks and join them with what is next to them. The state after each
 * token is rebuilt from the tokens alone. */
Test(token_trie, a_form_begins_behind_the_reasoning) {
    static const char text[] = "I see 8 < 62.\nSo: 862 </think>\n\n862";
    for (int f = 0; f < N_FILE; f++) {
        fv_tokenizer *tok = open_tokenizer(files[f]);
        const int32_t vocab = fv_tokenizer_vocab(tok), eos = eos_of(tok);
        float *l = malloc((size_t)vocab * sizeof *l);
        fv_token_rules r = rules_of(FV_GRAMMAR_REGEX, "[0-9]{3}");
        r.grammar.opens = "<think>";
        r.grammar.closes = "</think>";
        r.reasoning = FV_REASONING_OPEN;
        for (size_t piece = 1; piece < sizeof text; piece = piece < 8 ? piece + 1 : piece * 3) {
            int32_t answer[128], n = 0, *ids, n_ids;
            for (size_t at = 0; at < sizeof text - 1; at += piece) {
                const size_t left = sizeof text - 1 - at;
                cr_assert_eq(fv_tokenizer_encode_after(tok, n ? answer[n - 1] : eos, text + at,
                                                       left < piece ? left : piece, NULL, &ids,
                                                       &n_ids),
                             FV_OK);
                memcpy(answer + n, ids, (size_t)n_ids * sizeof *ids);
                n += n_ids;
                free(ids);
            }
            for (int32_t i = 0; i <= n; i++) {
                fv_token_mask *m;
                cr_assert_eq(fv_token_mask_open(&r, tok, vocab, &eos, 1, &m), FV_OK);
                cr_assert(legal(m, answer, i, l, vocab, i < n ? answer[i] : eos),
                          "%s: token %d of pieces of %zu", files[f], i, piece);
                cr_assert(i == n || l[eos] != 0, "the answer may not end yet");
                fv_token_mask_close(m);
            }
        }
        free(l);
        fv_tokenizer_free(tok);
    }
}

/* Answers that a random model gives are texts of the grammar, also as the tokenizer decodes them. */
Test(token_trie, random_answers_are_texts_of_the_grammar) {
    for (int f = 0; f < N_FILE; f++) {
        fv_tokenizer *tok = open_tokenizer(files[f]);
        const int32_t vocab = fv_tokenizer_vocab(tok), eos = eos_of(tok);
        float *l = malloc((size_t)vocab * sizeof *l);
        fv_logprob *scratch = malloc(FV_SAMPLE_SCRATCH((size_t)vocab) * sizeof *scratch);
        const fv_token_rules r =
            rules_of(FV_GRAMMAR_REGEX, "(red|gr\xC3\xBCn|\xF0\x9F\x98\x80|[0-9]{3}){2,5}!");
        fv_sampling s = fv_sampling_default();
        s.temperature = 1;
        for (int32_t i = 0; i < vocab; i++) l[i] = (float)(i * 7919 % 1000) / 500;
        for (uint64_t seed = 0; seed < 30; seed++) {
            fv_token_mask *m;
            fv_sampled got;
            int32_t answer[64], n = 0;
            char *text;
            size_t bytes;
            s.seed = seed;
            cr_assert_eq(fv_token_mask_open(&r, tok, vocab, &eos, 1, &m), FV_OK);
            do {
                cr_assert_eq(fv_sample(&s, m, l, vocab, answer, n, 0, (uint64_t)n, scratch, &got),
                             FV_OK, "%s", fv_last_error());
                cr_assert(n < 63);
                answer[n++] = got.id;
            } while (got.id != eos);
            cr_assert_eq(fv_tokenizer_decode(tok, answer, n - 1, false, &text, &bytes), FV_OK);
            cr_assert(bytes >= 5 && text[bytes - 1] == '!' &&
                          strspn(text, "redgr\xC3\xBCn\xF0\x9F\x98\x80"
                                       "0123456789!") == bytes,
                      "%s", text);
            fv_token_mask_close(m);
            free(text);
        }
        free(scratch);
        free(l);
        fv_tokenizer_free(tok);
    }
}

/* Takes tokens from step `from` on into answer, and returns their number. */
static int32_t take_all(const fv_generation_options *opt, const fv_tokenizer *tok, const float *l,
                        int32_t *answer, int32_t from) {
    fv_generation *g;
    const fv_sampled *token;
    const char *text;
    size_t n_text;
    cr_assert_eq(fv_generation_open(opt, tok, answer, from + 1, 1, &g), FV_OK, "%s",
                 fv_last_error());
    while (fv_generation_finish(g) == FV_FINISH_NOT)
        cr_assert_eq(fv_generation_take(g, l, &token, &text, &n_text), FV_OK, "%s",
                     fv_last_error());
    cr_assert_eq(fv_generation_finish(g), FV_FINISH_EOS);
    int32_t n, n_prompt;
    const int32_t *ids = fv_generation_ids(g, &n, &n_prompt);
    memcpy(answer, ids, (size_t)n * sizeof *ids);
    fv_generation_close(g);
    return n - n_prompt;
}

Test(token_trie, a_replayed_answer_gets_the_same_tokens) {
    fv_tokenizer *tok = open_tokenizer("llama2");
    const int32_t vocab = fv_tokenizer_vocab(tok), eos = eos_of(tok);
    float *l = malloc((size_t)vocab * sizeof *l);
    for (int32_t i = 0; i < vocab; i++) l[i] = (float)(i * 7919 % 1000) / 300;
    fv_generation_options opt = {.sampling = fv_sampling_default(),
                                 .rules = rules_of(FV_GRAMMAR_REGEX, "([a-z]{3,6} ){4,9}end"),
                                 .max_tokens = 200,
                                 .context = 1000,
                                 .n_vocab = vocab,
                                 .n_eos = 1,
                                 .eos = &eos};
    opt.sampling.temperature = 1;
    opt.sampling.seed = 4;
    int32_t first[300] = {5}, again[300];
    const int32_t n = take_all(&opt, tok, l, first, 0);
    cr_assert_gt(n, 5);
    for (int32_t cut = 1; cut < n; cut++) {
        memcpy(again, first, ((size_t)cut + 1) * sizeof *again);
        cr_assert_eq(take_all(&opt, tok, l, again, cut), n);
        cr_assert_eq(memcmp(again, first, ((size_t)n + 1) * sizeof *again), 0, "cut after %d", cut);
    }
    free(l);
    fv_tokenizer_free(tok);
}

Test(token_trie, the_grammar_wins_over_other_rules) {
    fv_tokenizer *tok = open_tokenizer("llama2");
    const int32_t vocab = fv_tokenizer_vocab(tok), eos = eos_of(tok),
                  other = fv_tokenizer_id(tok, "a");
    float *l = malloc((size_t)vocab * sizeof *l);
    const char *const bad[] = {"b"};
    fv_token_rules r = rules_of(FV_GRAMMAR_REGEX, "b");
    fv_token_mask *m;
    int32_t *ids, n_ids;
    r.min_tokens = 10;
    r.allowed = &other;
    r.n_allowed = 1;
    r.bad_word = bad;
    r.n_bad_word = 1;
    cr_assert_eq(fv_tokenizer_encode_after(tok, eos, "b", 1, NULL, &ids, &n_ids), FV_OK);
    cr_assert_eq(fv_token_mask_open(&r, tok, vocab, &eos, 1, &m), FV_OK);
    memset(l, 0, (size_t)vocab * sizeof *l);
    cr_assert_eq(fv_token_mask_apply(m, NULL, 0, l), FV_OK);
    int32_t n = 0;
    for (int32_t i = 0; i < vocab; i++) n += l[i] == 0;
    cr_assert_geq(n, 1);
    cr_assert(legal(m, ids, n_ids, l, vocab, eos),
              "nothing else is left, whatever min_tokens says");
    cr_assert_eq(fv_token_mask_apply(m, &other, 1, l), FV_EINVAL, "an answer outside the grammar");
    free(ids);
    free(l);
    fv_token_mask_close(m);
    r = rules_of(FV_GRAMMAR_REGEX, "(");
    cr_assert_eq(fv_token_mask_open(&r, tok, vocab, &eos, 1, &m), FV_EINVAL);
    fv_tokenizer_free(tok);
}
