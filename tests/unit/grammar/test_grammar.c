/* grammar/: expressions, choices, grammars, tags; masks and limits. */
#include "tests/unit/grammar/grammar_support.h"

#include <stdio.h>
#include <stdlib.h>

Test(grammar, expressions_match_the_whole_answer) {
    check_answers(FV_GRAMMAR_REGEX, "[a-c]{2,4}|x\\d+", LIST("ab", "abca", "x12"),
                  LIST("a", "abcab", "x", "ax1"));
    check_answers(FV_GRAMMAR_REGEX, "^yes$|^no$", LIST("yes", "no"), LIST("yes ", "maybe"));
    check_answers(FV_GRAMMAR_REGEX, "[^a]\\u00e9.?", LIST("b\xC3\xA9", "b\xC3\xA9\xE2\x82\xAC"),
                  LIST("a\xC3\xA9", "b\xC3"));
    check_answers(FV_GRAMMAR_REGEX, "(a?){0,50}b", LIST("b", "aab"), LIST("a"));
    check_answers(FV_GRAMMAR_REGEX, "(ab?){3,}", LIST("aaa", "ababab", "aaaab"), LIST("aa", "b"));
    check_refused(FV_GRAMMAR_REGEX, "a**b(", "not closed");
    check_refused(FV_GRAMMAR_REGEX, "\\bword", "not supported");
    check_refused(FV_GRAMMAR_REGEX, "(a)\\1", "not supported");
    check_refused(FV_GRAMMAR_REGEX, "[]", "no text satisfies");
    check_refused(FV_GRAMMAR_REGEX, "a{3,2}", "repetition");
}

Test(grammar, one_of_the_choices) {
    const char *const list[] = {"yes", "no", "not at all", "\xC3\xA9t\xC3\xA9", "no"};
    const fv_grammar_spec spec = {.kind = FV_GRAMMAR_CHOICE, .choice = list, .n_choice = 5};
    fv_grammar *g;
    cr_assert_eq(fv_grammar_compile(&spec, NULL, &g), FV_OK);
    cr_assert_eq(reads(g, "no"), 2);
    cr_assert_eq(reads(g, "not"), 1);
    cr_assert_eq(reads(g, "not at all"), 2);
    cr_assert_eq(reads(g, "\xC3\xA9t\xC3\xA9"), 2);
    cr_assert_eq(reads(g, "yes no"), 0);
    fv_grammar_unref(g);
    const fv_grammar_spec none = {.kind = FV_GRAMMAR_CHOICE};
    cr_assert_eq(fv_grammar_compile(&none, NULL, &g), FV_EINVAL);
}

Test(grammar, gbnf) {
    const char *g = "# a sum\nroot ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" root \")\"\n";
    check_answers(FV_GRAMMAR_EBNF, g, LIST("1", "1+22", "(1+(2))+3"), LIST("", "1+", "(1", "a"));
    check_answers(FV_GRAMMAR_EBNF, "root ::= [^\"\\\\]{1,3} \"\\n\"", LIST("ab\n"),
                  LIST("abcd\n", "\"\n"));
    check_refused(FV_GRAMMAR_EBNF, "root ::= x", "not defined");
    check_refused(FV_GRAMMAR_EBNF, "a ::= \"x\"", "no rule root");
    check_refused(FV_GRAMMAR_EBNF, "root ::= \"x\nroot2 ::= \"y\"", "");
}

Test(grammar, lark) {
    const char *g = "?start: sum\nsum: sum \"+\" product | product\nproduct: product \"*\" atom -> "
                    "mul\n | atom\n"
                    "atom: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]+/ // digits\n%ignore \" \"\n";
    check_answers(FV_GRAMMAR_EBNF, g, LIST("1", "1 + 2*3", "(1+2) * 3"), LIST("1+", "+1"));
    check_answers(FV_GRAMMAR_EBNF, "start: \"a\"i [\"b\"] \"c\"..\"e\" ~ 2", LIST("Abcd", "aee"),
                  LIST("abbcc", "ac"));
    check_answers(FV_GRAMMAR_EBNF,
                  "start: \"<\" v \">\"\nv: %json {\"type\":\"integer\"}\n%import common.WS\n",
                  LIST("<1>"), LIST("<>", "<x>"));
    check_refused(FV_GRAMMAR_EBNF, "start: a \"x\" | \"y\"\na: b\nb: start", "begins with itself");
    check_refused(FV_GRAMMAR_EBNF, "start: start \"a\"", "begins with itself");
}

Test(grammar, structural_tags) {
    const char *tag = "{\"type\":\"structural_tag\",\"triggers\":[\"<f=\"],\"structures\":[{"
                      "\"begin\":\"<f=now>\",\"schema\":"
                      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
                      "\"required\":[\"a\"]},\"end\":\"</f>\"}]}";
    check_answers(FV_GRAMMAR_STRUCTURAL_TAG, tag,
                  LIST("", "hello <f", "say <f=now>{\"a\":1}</f> and <b>"),
                  LIST("<f=x>", "<f=now>{}</f>", "<f=now>{\"a\":1}"));
}

Test(grammar, a_text_begins_behind_the_reasoning) {
    const fv_grammar_spec spec = {.kind = FV_GRAMMAR_REGEX,
                                  .text = "[0-9]+",
                                  .n_text = 6,
                                  .opens = "<think>",
                                  .closes = "</think>"};
    fv_grammar *g;
    fv_matcher *m;
    bool legal;
    cr_assert_eq(fv_grammar_compile(&spec, NULL, &g), FV_OK, "%s", fv_last_error());
    cr_expect_eq(reads(g, "12"), 2, "no reasoning");
    cr_expect_eq(reads(g, "\n<think>\nIt is </think, 7 or <8>?\n</think>\n\n12"), 2);
    cr_expect_eq(reads(g, "<think></think>1"), 2);
    cr_expect_eq(reads(g, "<think>It is red."), 1, "an answer does not end inside");
    cr_expect_eq(reads(g, "<think>a</think>"), 1, "nor before its text");
    cr_expect_eq(reads(g, "<think>a</think>b"), 0);
    cr_expect_eq(reads(g, "<think>a</think>1<think>"), 0);
    cr_expect_eq(reads(g, "<thin1"), 0);
    cr_assert_eq(fv_matcher_open(g, byte_trie(), false, &m), FV_OK);
    cr_assert_eq(fv_matcher_continue(m, "<think>"), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_matcher_push_text(m, "red</think>\n", 12, &legal), FV_OK);
    cr_expect(legal && !fv_matcher_may_end(m));
    cr_assert_eq(fv_matcher_push_text(m, "1", 1, &legal), FV_OK);
    cr_expect(legal && fv_matcher_may_end(m));
    cr_assert_eq(fv_matcher_continue(m, FV_GRAMMAR_THOUGHT), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_matcher_push_text(m, "<", 1, &legal), FV_OK);
    cr_expect_not(legal, "there is no reasoning, nor space");
    cr_assert_eq(fv_matcher_push_text(m, "1", 1, &legal), FV_OK);
    cr_expect(legal && fv_matcher_may_end(m));
    cr_expect_eq(fv_matcher_continue(m, "<b>"), FV_EINVAL);
    fv_matcher_close(m);
    fv_grammar_unref(g);
}

Test(grammar, a_compilation_can_be_tried_with_few_steps) {
    const char *text = "(a|b)*a(a|b){9}c";
    const fv_grammar_spec spec = {.kind = FV_GRAMMAR_REGEX, .text = text, .n_text = strlen(text)};
    fv_grammar *g = NULL;
    cr_expect_eq(fv_grammar_get_within(&spec, 10, &g), FV_EBUSY);
    cr_expect_null(g);
    cr_expect_eq(fv_grammar_get(&spec, &g), FV_OK, "the trial is not kept as a refusal");
    fv_grammar_unref(g);
    cr_expect_eq(fv_grammar_get_within(&spec, 10, &g), FV_OK, "it is known by now");
    fv_grammar_unref(g);
}

Test(grammar, grammars_with_and_without_reasoning_are_told_apart) {
    fv_grammar_spec spec = {.kind = FV_GRAMMAR_REGEX, .text = "b{3}", .n_text = 4};
    fv_grammar *plain, *after;
    cr_assert_eq(fv_grammar_get(&spec, &plain), FV_OK);
    spec.opens = "<t>";
    spec.closes = "</t>";
    cr_assert_eq(fv_grammar_get(&spec, &after), FV_OK);
    cr_expect_eq(reads(plain, "<t></t>bbb"), 0);
    cr_expect_eq(reads(after, "<t></t>bbb"), 2);
    fv_grammar_unref(plain);
    fv_grammar_unref(after);
}

/* ---- formats of structural tags ------------------------------------------------------------- */

#define FORMAT(text) "{\"type\":\"structural_tag\",\"format\":" text "}"
#define CONST(text) "{\"type\":\"const_string\",\"value\":\"" text "\"}"
#define INT "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}"
#define TAG(begin, content, end)                                                                   \
    "{\"type\":\"tag\",\"begin\":" begin ",\"content\":" content ",\"end\":\"" end "\"}"

Test(grammar, formats_of_tags) {
    check_answers(
        FV_GRAMMAR_STRUCTURAL_TAG,
        FORMAT("{\"type\":\"sequence\",\"elements\":[" CONST(
            "n=") "," INT
                  ",{\"type\":\"or\",\"elements\":[" CONST("!") ",{\"type\":\"regex\","
                                                                "\"pattern\":\"[a-c]+\"}]}]}"),
        LIST("n=12!", "n=1abc"), LIST("n=1", "n=!", "1!"));
    check_answers(FV_GRAMMAR_STRUCTURAL_TAG,
                  FORMAT(TAG("\"<a>\"", "{\"type\":\"any_text\"}", "</a>")),
                  LIST("<a></a>", "<a>b</a </b></a>"), LIST("<a>", "<a>x</a>y</a>"));
    check_answers(FV_GRAMMAR_STRUCTURAL_TAG,
                  FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<n\"],\"tags\":[" TAG(
                      "\"<n=\"", INT, ">") "]}"),
                  LIST("", "a <n=1> b<n=2>", "<"), LIST("<n", "<n=x>", "<n=1"));
    check_answers(FV_GRAMMAR_STRUCTURAL_TAG,
                  FORMAT("{\"type\":\"triggered_tags\",\"at_least_one\":true,\"stop_after_first\":"
                         "true,\"triggers\":[\"<n\"],\"tags\":[" TAG("\"<n=\"", INT, ">") "]}"),
                  LIST("a <n=1>"), LIST("", "<n=1>b", "<n=1><n=1>"));
    check_answers(FV_GRAMMAR_STRUCTURAL_TAG,
                  FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\", \",\"tags\":[" TAG(
                      "\"(\"", INT, ")") "]}"),
                  LIST("", "(1)", "(1), (2), (3)"), LIST("(1),(2)", "(1), "));
    check_refused(FV_GRAMMAR_STRUCTURAL_TAG, FORMAT("{\"type\":\"wish\"}"),
                  "'wish' is not supported");
    check_refused(FV_GRAMMAR_STRUCTURAL_TAG,
                  FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<n\"],\"tags\":[" TAG(
                      "\"<m\"", INT, ">") "]}"),
                  "begins with no trigger");
    check_refused(FV_GRAMMAR_STRUCTURAL_TAG, FORMAT("{\"type\":\"sequence\"}"),
                  "`elements` must be");
}

Test(grammar, parameters_of_calls_as_qwen_writes_them) {
    check_answers(
        FV_GRAMMAR_STRUCTURAL_TAG,
        FORMAT("{\"type\":\"qwen_xml_parameter\",\"json_schema\":{\"type\":\"object\",\"$defs\":{"
               "\"k\":{\"type\":\"integer\"}},\"properties\":{\"s\":{\"type\":\"string\"},\"e\":{"
               "\"enum\":[\"x\",\"y z\"]},\"l\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
               "k\"}},\"o\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}},\"required\":["
               "\"s\"],\"additionalProperties\":false}}"),
        LIST("<parameter=s>\n<b>5\n6\n</parameter>\n",
             "<parameter=s>\n\n</parameter>\n<parameter=e>\ny "
             "z\n</parameter>\n<parameter=l>\n[1,2]\n"
             "</parameter>\n<parameter=o>\nnull\n</parameter>\n"),
        LIST("", "<parameter=e>\nx\n</parameter>\n",
             "<parameter=s>\na\n</parameter>\n<parameter=e>\nz\n</parameter>\n",
             "<parameter=s>\na\n</parameter>\n<parameter=l>\n[\"1\"]\n</parameter>\n"));
    check_refused(FV_GRAMMAR_STRUCTURAL_TAG,
                  FORMAT("{\"type\":\"qwen_xml_parameter\",\"json_schema\":{\"properties\":{\"s\":{"
                         "\"type\":\"string\",\"allOf\":[]}}}}"),
                  "parameter 's': a string may have");
    check_refused(
        FV_GRAMMAR_STRUCTURAL_TAG,
        FORMAT("{\"type\":\"qwen_xml_parameter\",\"json_schema\":{\"properties\":{\"s\":{}}}}"),
        "its `type` must be given");
    static const char *const contradict[] = {"\"const\":5", "\"enum\":[5,null]"};
    for (size_t i = 0; i < sizeof contradict / sizeof *contradict; i++) {
        char spec[256];
        snprintf(spec, sizeof spec,
                 FORMAT("{\"type\":\"qwen_xml_parameter\",\"json_schema\":{\"required\":[\"s\"],"
                        "\"properties\":{\"s\":{\"type\":\"string\",%s}}}}"),
                 contradict[i]);
        check_refused(FV_GRAMMAR_STRUCTURAL_TAG, spec, "no text satisfies it");
    }
}

/* Nine levels of lists, each of 64 references to the level below. */
Test(grammar, a_short_schema_that_stands_for_a_large_one_costs_its_steps, .timeout = 240) {
    enum { LEVELS = 9, EACH = 64, CAP = 64 << 10 };
    char *text = malloc(CAP);
    size_t n = (size_t)snprintf(text, CAP,
                                "{\"format\":{\"type\":\"qwen_xml_parameter\",\"json_schema\":{"
                                "\"properties\":{\"s\":{\"$ref\":\"#/$defs/l8\"}},\"$defs\":{");
    for (int l = 0; l < LEVELS; l++) {
        n += (size_t)snprintf(text + n, CAP - n, "%s\"l%d\":{", l ? "," : "", l);
        n += (size_t)snprintf(text + n, CAP - n, l ? "\"anyOf\":[" : "\"type\":\"integer\"");
        for (int i = 0; l && i < EACH; i++)
            n += (size_t)snprintf(text + n, CAP - n, "%s{\"$ref\":\"#/$defs/l%d\"}", i ? "," : "",
                                  l - 1);
        n += (size_t)snprintf(text + n, CAP - n, l ? "]}" : "}");
    }
    snprintf(text + n, CAP - n, "}}}}");
    check_refused(FV_GRAMMAR_STRUCTURAL_TAG, text, "too many steps");
    free(text);
}

/* ---- masks ---------------------------------------------------------------------------------- */

enum { N_TOKEN = 8 };
static const char *const tokens[N_TOKEN] = {"", "a", "ab", "b", "bc", "c", "\xC3", "\xA9"};

static fv_token_trie *small_trie(void) {
    size_t bytes[N_TOKEN];
    fv_token_trie *t;
    for (int i = 0; i < N_TOKEN; i++) bytes[i] = strlen(tokens[i]);
    cr_assert_eq(fv_token_trie_make(tokens, bytes, N_TOKEN, &t), FV_OK);
    return t;
}

static uint64_t mask_after(fv_matcher *m, const int32_t *answer, int32_t n) {
    const uint64_t *bits;
    int32_t n_legal;
    cr_assert_eq(fv_matcher_seek(m, answer, n), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_matcher_mask(m, &bits, &n_legal), FV_OK, "%s", fv_last_error());
    cr_assert_eq(__builtin_popcountll(*bits), n_legal);
    return *bits;
}

Test(grammar, a_mask_has_the_tokens_that_may_be_next) {
    fv_token_trie *t = small_trie();
    fv_grammar *g;
    fv_matcher *m;
    cr_assert_eq(compile(FV_GRAMMAR_REGEX, "ab*c|\xC3\xA9", &g), FV_OK);
    cr_assert_eq(fv_matcher_open(g, t, false, &m), FV_OK);
    cr_assert_eq(mask_after(m, NULL, 0), 1 << 1 | 1 << 2 | 1 << 6, "a, ab, half a character");
    cr_assert_eq(mask_after(m, (int32_t[]){1}, 1), 1 << 3 | 1 << 4 | 1 << 5);
    cr_assert_not(fv_matcher_may_end(m));
    cr_assert_eq(mask_after(m, (int32_t[]){1, 4}, 2), 0);
    cr_assert(fv_matcher_may_end(m));
    cr_assert_eq(mask_after(m, (int32_t[]){2}, 1), 1 << 3 | 1 << 4 | 1 << 5, "another answer");
    cr_assert_eq(mask_after(m, (int32_t[]){6}, 1), 1 << 7);
    cr_assert_eq(fv_matcher_seek(m, (int32_t[]){3}, 1), FV_EINVAL, "a token that is not legal");
    cr_assert_eq(fv_matcher_seek(m, (int32_t[]){0}, 1), FV_EINVAL, "a token without bytes");
    fv_matcher_close(m);
    fv_grammar_unref(g);
    fv_token_trie_free(t);
}

Test(grammar, a_mark_may_be_a_special_token) {
    static const char *const word[] = {"<t>", FV_TOKEN_SPECIAL "<t>", FV_TOKEN_SPECIAL "</t>", "a",
                                       "b",   FV_TOKEN_SPECIAL "<s>"};
    const size_t bytes[] = {3, 4, 5, 1, 1, 4};
    const fv_grammar_spec spec = {
        .kind = FV_GRAMMAR_REGEX, .text = "a", .n_text = 1, .opens = "<t>", .closes = "</t>"};
    fv_token_trie *t;
    fv_grammar *g;
    fv_matcher *m;
    cr_assert_eq(fv_token_trie_make(word, bytes, 6, &t), FV_OK);
    cr_assert_eq(fv_grammar_compile(&spec, NULL, &g), FV_OK);
    cr_assert_eq(fv_matcher_open(g, t, false, &m), FV_OK);
    cr_assert_eq(mask_after(m, NULL, 0), 1 << 0 | 1 << 1 | 1 << 3);
    cr_assert_eq(mask_after(m, (int32_t[]){1}, 1), 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4);
    cr_assert_eq(mask_after(m, (int32_t[]){1, 4, 2}, 3), 1 << 3);
    fv_matcher_close(m);
    fv_grammar_unref(g);
    fv_token_trie_free(t);
}

Test(grammar, a_space_that_the_decoder_cuts_is_no_text) {
    static const char *const word[] = {" ", "a", " a", "  a", " b", "b"};
    const size_t bytes[] = {1, 1, 2, 3, 2, 1};
    fv_token_trie *t;
    fv_grammar *g;
    fv_matcher *m;
    cr_assert_eq(fv_token_trie_make(word, bytes, 6, &t), FV_OK);
    cr_assert_eq(compile(FV_GRAMMAR_REGEX, "a b", &g), FV_OK);
    cr_assert_eq(fv_matcher_open(g, t, true, &m), FV_OK);
    cr_assert_eq(mask_after(m, NULL, 0), 1 << 0 | 1 << 1 | 1 << 2);
    cr_assert_eq(mask_after(m, (int32_t[]){0}, 1), 1 << 1);
    cr_assert_eq(mask_after(m, (int32_t[]){2}, 1), 1 << 0 | 1 << 4);
    cr_assert_eq(mask_after(m, (int32_t[]){2, 4}, 2), 0);
    cr_assert(fv_matcher_may_end(m));
    fv_matcher_close(m);
    fv_grammar_unref(g);
    fv_token_trie_free(t);
}

/* Each token of a mask is accepted, and no other. */
Test(grammar, masks_are_what_the_bytes_say) {
    static const char *const schema =
        "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"string\",\"maxLength\":3},\"b\":"
        "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}},\"required\":[\"ab\"]}";
    static const char *const word[] = {
        "{\"", "ab", "\":", "\"", "\xC3", "\xC3\xA9", "\",", " ", "\"b\":[", "1", ",", "]}",
        "}",   "\\", "n",   "12", "\xA9", "u00",      "e9",  "b", "[",       ":", "]"};
    enum { N = sizeof word / sizeof *word };
    size_t bytes[N];
    fv_token_trie *t;
    fv_grammar *g;
    fv_matcher *m, *one;
    const uint64_t *bits;
    int32_t n_legal, answer[64], n = 0;
    for (int i = 0; i < N; i++) bytes[i] = strlen(word[i]);
    cr_assert_eq(fv_token_trie_make(word, bytes, N, &t), FV_OK);
    cr_assert_eq(compile(FV_GRAMMAR_JSON_SCHEMA, schema, &g), FV_OK);
    cr_assert_eq(fv_matcher_open(g, t, false, &m), FV_OK);
    cr_assert_eq(fv_matcher_open(g, t, false, &one), FV_OK);
    srand(1);
    for (int step = 0; step < 400; step++) {
        cr_assert_eq(fv_matcher_seek(m, answer, n), FV_OK);
        cr_assert_eq(fv_matcher_mask(m, &bits, &n_legal), FV_OK);
        cr_assert(n_legal > 0 || fv_matcher_may_end(m), "a dead end");
        for (int i = 0; i < N; i++) {
            answer[n] = i;
            cr_assert_eq(fv_matcher_seek(one, answer, n + 1) == FV_OK, *bits >> i & 1, "%s",
                         word[i]);
        }
        int pick = n_legal ? rand() % n_legal : 0, id = 0;
        for (; n_legal; id++)
            if (*bits >> id & 1 && pick-- == 0) break;
        answer[n] = id;
        n = n_legal && n < 60 ? n + 1 : 0;
    }
    fv_matcher_close(m);
    fv_matcher_close(one);
    fv_grammar_unref(g);
    fv_token_trie_free(t);
}

Test(grammar, states_that_were_forgotten_are_made_again) {
    const fv_grammar_limits limits = {.bytes = 100000};
    const fv_grammar_spec spec = {.kind = FV_GRAMMAR_REGEX, .text = "[ab]*a[ab]{12}", .n_text = 14};
    fv_grammar *g;
    fv_matcher *m;
    int32_t answer[4000];
    cr_assert_eq(fv_grammar_compile(&spec, &limits, &g), FV_OK);
    cr_assert_eq(fv_matcher_open(g, byte_trie(), false, &m), FV_OK);
    srand(2);
    for (int i = 0; i < 4000; i++) {
        const uint64_t *bits;
        int32_t n_legal;
        answer[i] = rand() % 2 ? 'a' : 'b';
        cr_assert_eq(fv_matcher_seek(m, answer, i + 1), FV_OK, "%s", fv_last_error());
        cr_assert_eq(fv_matcher_mask(m, &bits, &n_legal), FV_OK, "%s", fv_last_error());
        cr_assert_eq(n_legal, 2);
        cr_assert_eq(fv_matcher_may_end(m), i >= 12 && answer[i - 12] == 'a');
    }
    fv_matcher_close(m);
    fv_grammar_unref(g);
}

/* ---- hostile specs ---------------------------------------------------------------------------- */

static char *nested(const char *open, const char *within, const char *close, int n) {
    const size_t size = (strlen(open) + strlen(close)) * (size_t)n + strlen(within) + 1;
    char *s = malloc(size), *at = s;
    for (int i = 0; i < n; i++) at = stpcpy(at, open);
    at = stpcpy(at, within);
    for (int i = 0; i < n; i++) at = stpcpy(at, close);
    return s;
}

/* Ends with a result or a sentence; how soon is bounded by steps, which are the same on each machine. */
static void survives(fv_grammar_kind kind, char *text) {
    fv_grammar *g = NULL;
    fv_matcher *m;
    const uint64_t *bits;
    int32_t n_legal;
    if (compile(kind, text, &g) == FV_OK) {
        cr_assert_eq(fv_matcher_open(g, byte_trie(), false, &m), FV_OK);
        if (fv_matcher_mask(m, &bits, &n_legal) != FV_OK) cr_assert(*fv_last_error());
        fv_matcher_close(m);
    } else {
        cr_assert(*fv_last_error());
    }
    fv_grammar_unref(g);
    free(text);
}

Test(grammar, hostile_specs_end) {
    survives(FV_GRAMMAR_REGEX, nested("(", "a", ")", 100000));
    survives(FV_GRAMMAR_REGEX, nested("(a|b", "", ")*", 150));
    survives(FV_GRAMMAR_REGEX, strdup("(a*)*(a*)*(a*)*b"));
    survives(FV_GRAMMAR_REGEX, strdup("((a{0,5000}){0,5000}){0,5000}"));
    survives(FV_GRAMMAR_REGEX, strdup("((((a?){9999}){9999}){9999}){9999}"));
    survives(FV_GRAMMAR_REGEX, strdup("a{999999999}"));
    survives(FV_GRAMMAR_EBNF, nested("(", "\"a\"", ")", 100000));
    survives(FV_GRAMMAR_EBNF, strdup("root ::= root root | \"a\" |"));
    survives(FV_GRAMMAR_EBNF,
             strdup("root ::= \"a\" (x | y)*\nx ::= \"a\" (x | y)*\ny ::= \"a\" (x | y)*"));
    survives(FV_GRAMMAR_JSON_SCHEMA, nested("{\"items\":", "{}", "}", 1500));
    survives(FV_GRAMMAR_JSON_SCHEMA, nested("{\"oneOf\":[{\"type\":\"null\"},", "{}", "]}", 500));
    survives(FV_GRAMMAR_JSON_SCHEMA,
             nested("{\"anyOf\":[{},{\"allOf\":[{\"anyOf\":[{},{}]},", "{}", "]}]}", 300));
    survives(FV_GRAMMAR_JSON_SCHEMA, strdup("{\"$ref\":\"#\"}"));
    survives(FV_GRAMMAR_JSON_SCHEMA,
             strdup("{\"minItems\":2147483647,\"items\":{\"minLength\":2147483647}}"));
    survives(FV_GRAMMAR_JSON_SCHEMA,
             strdup("{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){30}$\",\"maxLength\":60}"));
    survives(FV_GRAMMAR_JSON_SCHEMA,
             strdup("{\"type\":\"number\",\"minimum\":1e300,\"maximum\":1e308}"));
}
