/* The tokenizer against `tokenizers` (golden files, see tests/parity/tokenizer_golden.py), and with
 * invalid files and calls. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "tests/support/thorough.h"
#include "text/tokenizer.h"

static const char *const forms[] = {
    "llama2",    "metaspace-first", "metaspace-always", "metaspace-never", "gpt2",
    "llama3",    "qwen2",           "smollm2",          "odd-unk",         "odd-fuse",
    "odd-bytes", "odd-nfkd",        "deepseek",         "o200k",           "tekken",
    "odd-regex", "gemma",           "unigram",          "unigram-words",   "unigram-bytes",
};
enum { N_FORM = sizeof forms / sizeof *forms };

/* ---- golden files ---- */

typedef struct reader {
    const unsigned char *at, *end;
} reader;

static uint32_t read_n(reader *r, size_t bytes) {
    uint32_t v = 0;
    cr_assert(r->at + bytes <= r->end, "the golden file is cut off");
    for (size_t i = 0; i < bytes; i++) v |= (uint32_t)r->at[i] << 8 * i;
    r->at += bytes;
    return v;
}

typedef struct text {
    const char *s;
    size_t n;
} text;

static text read_text(reader *r) {
    size_t n = read_n(r, 4);
    cr_assert((size_t)(r->end - r->at) >= n, "the golden file is cut off");
    text t = {(const char *)r->at, n};
    r->at += n;
    return t;
}

static fv_tokenizer *open_form(const char *form, fv_file_map *cases) {
    const char *dir = getenv("FOVEA_TOKENIZER_GOLDEN");
    if (!dir) dir = FOVEA_TEST_DATA "/golden/tokenizer";
    char path[4096], *json;
    size_t n;
    fv_tokenizer *tok;
    snprintf(path, sizeof path, "%s/%s.json", dir, form);
    cr_assert_eq(fv_file_read(path, 1 << 24, &json, &n), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_tokenizer_parse(json, n, path, &tok), FV_OK, "%s", fv_last_error());
    free(json);
    if (!cases) return tok;
    snprintf(path, sizeof path, "%s/%s.bin", dir, form);
    cr_assert_eq(fv_file_map_open(path, cases), FV_OK, "%s", fv_last_error());
    return tok;
}

static void check_encode(const fv_tokenizer *tok, const char *where, text t, bool special,
                         const int32_t *want, int32_t n_want) {
    int32_t *ids, n;
    cr_assert_eq(fv_tokenizer_encode(tok, t.s, t.n, special, &ids, &n), FV_OK, "%s: %s", where,
                 fv_last_error());
    /* odd ones make one token of any text, some unigram ones of any white space */
    if (n > 0 && strncmp(where, "odd-", 4) != 0 && strncmp(where, "unigram", 7) != 0)
        cr_assert_leq(t.n, fv_tokenizer_token_bytes(tok) * (size_t)n, "%s: %zu bytes are %d tokens",
                      where, t.n, n);
    int32_t same = 0;
    while (same < n && same < n_want && ids[same] == want[same]) same++;
    cr_assert(same == n && same == n_want, "%s: id %d of %d is %d, not %d of %d: '%.*s'", where,
              same, n, same < n ? ids[same] : -1, same < n_want ? want[same] : -1, n_want, (int)t.n,
              t.s);
    free(ids);
}

static void check_decode(const fv_tokenizer *tok, const char *where, const int32_t *ids, int32_t n,
                         bool skip, text want) {
    char *got;
    size_t bytes;
    cr_assert_eq(fv_tokenizer_decode(tok, ids, n, skip, &got, &bytes), FV_OK, "%s: %s", where,
                 fv_last_error());
    cr_assert(bytes == want.n && memcmp(got, want.s, bytes) == 0, "%s: skip=%d '%.*s' not '%.*s'",
              where, skip, (int)bytes, got, (int)want.n, want.s);
    cr_assert_eq(got[bytes], 0);
    free(got);
}

static bool is_utf8(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 0;
        if (len == 0 || i + len > n) return false;
        for (size_t k = 1; k < len; k++)
            if (((unsigned char)s[i + k] & 0xC0) != 0x80) return false;
        i += len;
    }
    return true;
}

static void check_stream(fv_detokenizer *d, const char *where, const int32_t *ids, int32_t n,
                         text want) {
    size_t at = 0;
    for (int32_t i = 0; i <= n; i++) {
        const char *piece;
        size_t bytes;
        fv_status st = i < n ? fv_detokenizer_push(d, ids[i], &piece, &bytes)
                             : fv_detokenizer_flush(d, &piece, &bytes);
        cr_assert_eq(st, FV_OK, "%s: %s", where, fv_last_error());
        cr_assert(is_utf8(piece, bytes), "%s: half a character after id %d", where, i);
        cr_assert(at + bytes <= want.n && memcmp(want.s + at, piece, bytes) == 0,
                  "%s: after id %d the stream leaves '%.*s'", where, i, (int)want.n, want.s);
        at += bytes;
    }
    cr_assert_eq(at, want.n, "%s: the stream ends %zu bytes early", where, want.n - at);
}

static int32_t ids_buffer[1 << 16];

/* Replays one form; returns how many strings were encoded. */
static int32_t replay(const char *form, int32_t *n_decoded) {
    fv_file_map map;
    fv_tokenizer *tok = open_form(form, &map);
    fv_detokenizer *all, *plain;
    cr_assert_eq(fv_detokenizer_open(tok, false, &all), FV_OK);
    cr_assert_eq(fv_detokenizer_open(tok, true, &plain), FV_OK);
    reader r = {map.data, (const unsigned char *)map.data + map.bytes};
    cr_assert(map.bytes > 12 && memcmp(r.at, "FVTOK1\n", 8) == 0, "%s: not a golden file", form);
    r.at += 8;
    int32_t n_case = (int32_t)read_n(&r, 4), n_text = 0;
    for (int32_t i = 0; i < n_case; i++) {
        char where[64];
        snprintf(where, sizeof where, "%s case %d", form, i);
        uint32_t flags = read_n(&r, 1);
        text t = read_text(&r);
        int32_t n = (int32_t)read_n(&r, 4);
        cr_assert_leq(n, 1 << 16);
        for (int32_t k = 0; k < n; k++) ids_buffer[k] = (int32_t)read_n(&r, 2);
        text decoded = flags & 4 ? t : read_text(&r);
        text skipped = flags & 8 ? decoded : read_text(&r);
        if (!(flags & 2)) {
            check_encode(tok, where, t, flags & 1, ids_buffer, n);
            n_text++;
        }
        check_decode(tok, where, ids_buffer, n, false, decoded);
        check_decode(tok, where, ids_buffer, n, true, skipped);
        check_stream(all, where, ids_buffer, n, decoded);
        check_stream(plain, where, ids_buffer, n, skipped);
    }
    cr_assert(r.at == r.end, "%s: bytes after the last case", form);
    *n_decoded += n_case;
    fv_detokenizer_close(all);
    fv_detokenizer_close(plain);
    fv_tokenizer_free(tok);
    fv_file_map_close(&map);
    return n_text;
}

Test(tokenizer, ids_text_and_stream_equal_those_of_huggingface) {
    int32_t n_text = 0, n_decoded = 0;
    for (int f = 0; f < N_FORM; f++) n_text += replay(forms[f], &n_decoded);
    cr_log_info("%d strings encoded, %d decoded", n_text, n_decoded);
    if (!getenv("FOVEA_TOKENIZER_GOLDEN")) cr_assert_geq(n_text, 10000);
}

/* ---- small tokenizers written here ---- */

#define VOCAB "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3,\"▁\":4,\"▁a\":5}"
#define MERGES "\"merges\":[\"a b\",[\"▁\",\"a\"]]"
#define MODEL "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\"," VOCAB "," MERGES "}"

static fv_status parse(const char *json, fv_tokenizer **tok) {
    return fv_tokenizer_parse(json, strlen(json), "tokenizer.json", tok);
}

static fv_tokenizer *small(const char *json) {
    fv_tokenizer *tok;
    cr_assert_eq(parse(json, &tok), FV_OK, "%s", fv_last_error());
    return tok;
}

static void expect_ids(const fv_tokenizer *tok, const char *s, size_t n, const char *want) {
    int32_t *ids, n_ids;
    char got[512] = "";
    cr_assert_eq(fv_tokenizer_encode(tok, s, n, true, &ids, &n_ids), FV_OK, "%s", fv_last_error());
    for (int32_t i = 0; i < n_ids; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), i ? " %d" : "%d", ids[i]);
    cr_assert_str_eq(got, want);
    free(ids);
}

static void expect_text(const fv_tokenizer *tok, const int32_t *ids, int32_t n, const char *want) {
    check_decode(tok, "here", ids, n, false, (text){want, strlen(want)});
}

Test(tokenizer, merges_lowest_rank_first_and_leftmost_on_ties) {
    fv_tokenizer *tok = small("{" MODEL "}");
    expect_ids(tok, "abab", 4, "3 3");
    expect_ids(tok, "aab", 3, "1 3");
    expect_ids(tok, "", 0, "");
    expect_ids(tok, "▁ab", 5, "4 3");
    expect_ids(tok, "▁aa", 5, "5 1");
    fv_tokenizer_free(tok);
}

Test(tokenizer, replaces_each_byte_of_invalid_utf8_by_the_replacement_character) {
    fv_tokenizer *tok = small("{\"model\":{\"vocab\":{\"a\":0,\"\\uFFFD\":1},\"merges\":[]}}");
    expect_ids(tok,
               "a\xE4\xBD"
               "a",
               4, "0 1 1 0");
    expect_ids(tok, "\xFF\xED\xA0\x80\xF4\x90\x80\x80", 8, "1 1 1 1 1 1 1 1");
    expect_ids(tok, "\xC0\x80", 2, "1 1");
    expect_ids(tok, "\xF0\x9F\x98", 3, "1 1 1");
    fv_tokenizer_free(tok);
}

Test(tokenizer, takes_text_with_nul_bytes) {
    fv_tokenizer *tok = small("{\"model\":{\"vocab\":{\"a\":0,\"<0x00>\":1},\"merges\":[],"
                              "\"byte_fallback\":true}}");
    expect_ids(tok, "a\0a\0", 4, "0 1 0 1");
    fv_tokenizer_free(tok);
}

Test(tokenizer, refuses_texts_of_absurd_size) {
    fv_tokenizer *tok = small("{" MODEL "}");
    int32_t *ids, n;
    cr_assert_eq(fv_tokenizer_encode(tok, "a", ((size_t)1 << 28) + 1, true, &ids, &n), FV_EINVAL);
    cr_assert_eq(fv_tokenizer_encode(tok, "a", SIZE_MAX, true, &ids, &n), FV_EINVAL);
    fv_tokenizer_free(tok);
}

Test(tokenizer, leaves_out_characters_that_no_token_stands_for) {
    fv_tokenizer *tok = small("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    expect_ids(tok, "xaya", 4, "0 0");
    fv_tokenizer_free(tok);
}

Test(tokenizer, fails_when_it_needs_an_unk_token_that_does_not_exist) {
    fv_tokenizer *tok =
        small("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"<unk>\"}}");
    int32_t *ids, n;
    expect_ids(tok, "a", 1, "0");
    cr_assert_eq(fv_tokenizer_encode(tok, "ax", 2, true, &ids, &n), FV_EDATA);
    fv_tokenizer_free(tok);
}

Test(tokenizer, text_that_is_too_long_by_its_bytes_is_refused_before_it_is_read) {
    fv_tokenizer *tok = small("{" MODEL "}");
    size_t each = fv_tokenizer_token_bytes(tok);
    cr_assert_eq(each, 5, "the longest token is <unk>; nothing is shortened");
    cr_assert_eq(fv_tokenizer_check_length(tok, 0, 0), FV_OK);
    cr_assert_eq(fv_tokenizer_check_length(tok, 10 * each, 10), FV_OK);
    cr_assert_eq(fv_tokenizer_check_length(tok, 10 * each + 1, 10), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "at most 50 bytes"), "%s", fv_last_error());
    fv_tokenizer_free(tok);
}

Test(tokenizer, one_token_can_stand_for_more_where_text_is_shortened) {
    static const char *const shortened[] = {
        "{" MODEL ",\"normalizer\":{\"type\":\"NFKC\"}}",
        "{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"xy\"},"
        "\"content\":\"a\"}}",
        "{" MODEL ",\"added_tokens\":[{\"id\":6,\"content\":\"<x>\",\"rstrip\":true}]}",
        "{\"model\":{\"vocab\":{\"abcde\":0},\"merges\":[]}}"};
    for (size_t i = 0; i < sizeof shortened / sizeof *shortened; i++) {
        fv_tokenizer *tok = small(shortened[i]);
        cr_assert_eq(fv_tokenizer_token_bytes(tok), 4 * 5, "%s", shortened[i]);
        fv_tokenizer_free(tok);
    }
}

Test(tokenizer, answers_small_questions) {
    fv_tokenizer *tok = small("{" MODEL ",\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\","
                              "\"special\":true},{\"id\":6,\"content\":\"<x>\"}]}");
    cr_assert_eq(fv_tokenizer_vocab(tok), 7);
    cr_assert_eq(fv_tokenizer_id(tok, "ab"), 3);
    cr_assert_eq(fv_tokenizer_id(tok, "<x>"), 6);
    cr_assert_eq(fv_tokenizer_id(tok, "nothing"), -1);
    cr_assert_eq(fv_tokenizer_id(tok, ""), -1);
    cr_assert(fv_tokenizer_is_special(tok, 0));
    cr_assert(!fv_tokenizer_is_special(tok, 6));
    cr_assert(!fv_tokenizer_is_special(tok, -1));
    cr_assert(!fv_tokenizer_is_special(tok, 7));
    fv_tokenizer_free(tok);
    fv_tokenizer_free(NULL);
}

Test(tokenizer, does_not_spell_words_with_added_tokens) {
    fv_tokenizer *tok = small("{" MODEL ",\"added_tokens\":[{\"id\":6,\"content\":\"c\","
                              "\"single_word\":true}]}");
    expect_ids(tok, "c", 1, "6");
    expect_ids(tok, "ac", 2, "1 0");
    fv_tokenizer_free(tok);
}

Test(tokenizer, refuses_ids_outside_the_vocabulary_when_decoding) {
    fv_tokenizer *tok = small("{\"model\":{\"vocab\":{\"a\":0,\"b\":2},\"merges\":[]}}");
    const int32_t bad[] = {-1, 1, 3, INT32_MAX, INT32_MIN};
    fv_detokenizer *d;
    cr_assert_eq(fv_detokenizer_open(tok, false, &d), FV_OK);
    for (int i = 0; i < 5; i++) {
        char *s = NULL;
        const char *piece;
        size_t n;
        cr_assert_eq(fv_tokenizer_decode(tok, &bad[i], 1, false, &s, &n), FV_EINVAL);
        cr_assert_null(s);
        cr_assert_eq(fv_detokenizer_push(d, bad[i], &piece, &n), FV_EINVAL);
    }
    fv_detokenizer_close(d);
    fv_detokenizer_close(NULL);
    fv_tokenizer_free(tok);
}

Test(tokenizer, decodes_nothing_to_an_empty_string) {
    for (int f = 0; f < N_FORM; f++) {
        fv_tokenizer *tok = open_form(forms[f], NULL);
        expect_text(tok, NULL, 0, "");
        fv_tokenizer_free(tok);
    }
}

Test(tokenizer, strip_cuts_both_ends_and_may_cut_everything) {
    fv_tokenizer *tok = small("{\"model\":{\"vocab\":{\" \":0,\"a\":1},\"merges\":[]},\"decoder\":"
                              "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
                              "\"Strip\",\"content\":\" \",\"start\":1,\"stop\":2}]}}");
    expect_text(tok, (int32_t[]){0, 0, 1, 0, 0, 0}, 6, " a ");
    expect_text(tok, (int32_t[]){1, 0, 1, 0}, 4, "a a");
    expect_text(tok, (int32_t[]){0, 0, 0, 0}, 4, " ");
    expect_text(tok, (int32_t[]){0}, 1, "");
    fv_tokenizer_free(tok);
}

Test(tokenizer, a_stream_can_be_used_again_after_flush) {
    fv_tokenizer *tok = open_form("llama2", NULL);
    fv_detokenizer *d;
    cr_assert_eq(fv_detokenizer_open(tok, false, &d), FV_OK);
    int32_t *ids, n;
    const char s[] = "Two 😀 boats\u2603";
    cr_assert_eq(fv_tokenizer_encode(tok, s, strlen(s), false, &ids, &n), FV_OK);
    for (int round = 0; round < 3; round++) check_stream(d, "here", ids, n, (text){s, strlen(s)});
    free(ids);
    fv_detokenizer_close(d);
    fv_tokenizer_free(tok);
}

/* ---- time ---- */

static double seconds_to_encode(const fv_tokenizer *tok, const char *s, size_t n) {
    struct timespec a, b;
    int32_t *ids, n_ids;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    cr_assert_eq(fv_tokenizer_encode(tok, s, n, true, &ids, &n_ids), FV_OK, "%s", fv_last_error());
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    free(ids);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* A quadratic step takes 4 s on 64 KiB and a minute on 256 KiB. */
Test(tokenizer, time_is_not_quadratic_in_the_text, .timeout = 300) {
    const size_t N = thorough() ? 1 << 18 : 1 << 16;
    const double most = thorough() ? 10 : 2;
    const char *units[] = {
        "a",      " ",    "\n", " \n",      "ab ",           "1",       "\u0316\u0301",
        "<image", "\xFF", "é",  "👍🏽", "the harbour, ", "<left> ", "  "};
    char *s = malloc(N + 64);
    for (int f = 0; f < N_FORM; f++) {
        fv_tokenizer *tok = open_form(forms[f], NULL);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t len = strlen(units[u]), n = 0;
            for (; n < N; n += len) memcpy(s + n, units[u], len);
            double t = seconds_to_encode(tok, s, n);
            cr_log_info("%s: all of '%s' in %.3f s", forms[f], units[u], t);
            cr_assert_lt(t, most, "%s: %zu bytes of '%s' took %.1f s", forms[f], n, units[u], t);
        }
        /* All marks of one class, then all of a lower one: the worst case of canonical ordering. */
        for (size_t n = 0; n < N; n += 2) memcpy(s + n, n < N / 2 ? "\u0301" : "\u0316", 2);
        cr_assert_lt(seconds_to_encode(tok, s, N), most, "%s: marks out of order", forms[f]);
        fv_tokenizer_free(tok);
    }
    free(s);
}

/* ---- invalid files ----------- */

static void expect_failure(const char *json, size_t n, fv_status want, const char *word) {
    fv_tokenizer *tok = NULL;
    fv_status st = fv_tokenizer_parse(json, n, "tokenizer.json", &tok);
    cr_assert_eq(st, want, "%s (%s) for %.200s", fv_status_name(st), fv_last_error(), json);
    cr_assert_null(tok);
    cr_assert(strstr(fv_last_error(), word), "'%s' does not say '%s'", fv_last_error(), word);
    cr_assert(strstr(fv_last_error(), "tokenizer.json"), "'%s' names no file", fv_last_error());
}

static void expect_bad(fv_status want, const char *word, const char *json) {
    expect_failure(json, strlen(json), want, word);
}

Test(tokenizer, refuses_a_file_cut_off_anywhere) {
    char path[4096], *json;
    size_t n;
    snprintf(path, sizeof path, "%s/golden/tokenizer/odd-bytes.json", FOVEA_TEST_DATA);
    cr_assert_eq(fv_file_read(path, 1 << 24, &json, &n), FV_OK, "%s", fv_last_error());
    while (n && json[n - 1] != '}') n--;
    for (size_t k = 0; k < n; k += k < n - 500 ? 97 : 1) {
        fv_tokenizer *tok = NULL;
        cr_assert_eq(fv_tokenizer_parse(json, k, "tokenizer.json", &tok), FV_EDATA, "%zu", k);
        cr_assert_null(tok);
    }
    free(json);
}

Test(tokenizer, says_which_file_is_missing) {
    fv_tokenizer *tok;
    cr_assert_eq(fv_tokenizer_open("/nowhere", &tok), FV_ENOTFOUND);
    cr_assert(strstr(fv_last_error(), "/nowhere has no tokenizer.json"), "%s", fv_last_error());
}

Test(tokenizer, refuses_broken_json) {
    expect_bad(FV_EDATA, "JSON", "");
    expect_bad(FV_EDATA, "JSON", "[");
    expect_bad(FV_EDATA, "JSON", "{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}");
    expect_bad(FV_EDATA, "object", "[]");
    expect_bad(FV_EDATA, "no model", "{}");
    expect_bad(FV_EDATA, "no model", "{\"model\":7}");
}

Test(tokenizer, refuses_broken_unigram_models) {
#define UNIGRAM(vocab) "{\"model\":{\"type\":\"Unigram\",\"vocab\":" vocab "}}"
    expect_bad(FV_EDATA, "a list 'vocab'", UNIGRAM("[]"));
    expect_bad(FV_EDATA, "a list 'vocab'", UNIGRAM("{\"a\":0}"));
    expect_bad(FV_EDATA, "piece 0", UNIGRAM("[\"a\"]"));
    expect_bad(FV_EDATA, "piece 1", UNIGRAM("[[\"a\",0],[\"b\",\"c\"]]"));
    expect_bad(FV_EDATA, "listed twice", UNIGRAM("[[\"a\",0],[\"a\",-1]]"));
    expect_bad(FV_EDATA, "unk_id", UNIGRAM("[[\"a\",0]],\"unk_id\":1"));
    fv_tokenizer *tok = small(UNIGRAM("[[\"a\",0]]"));
    int32_t *ids, n;
    cr_assert_eq(fv_tokenizer_encode(tok, "ab", 2, false, &ids, &n), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "unk_id"), "%s", fv_last_error());
    fv_tokenizer_free(tok);
}

Test(tokenizer, refuses_models_that_are_not_plain_bpe) {
    expect_bad(FV_EUNSUPPORTED, "WordPiece", "{\"model\":{\"type\":\"WordPiece\"}}");
    expect_bad(FV_EDATA, "merges", "{\"model\":{\"type\":\"BPE\"," VOCAB "}}");
    expect_bad(FV_EDATA, "vocab", "{\"model\":{\"vocab\":[],\"merges\":[]}}");
    expect_bad(FV_EUNSUPPORTED, "dropout", "{\"model\":{\"dropout\":0.1," VOCAB "," MERGES "}}");
    expect_bad(FV_EUNSUPPORTED, "continuing_subword_prefix",
               "{\"model\":{\"continuing_subword_prefix\":\"##\"," VOCAB "," MERGES "}}");
    expect_bad(FV_EUNSUPPORTED, "end_of_word_suffix",
               "{\"model\":{\"end_of_word_suffix\":\"</w>\"," VOCAB "," MERGES "}}");
    expect_bad(FV_EUNSUPPORTED, "2.0", "{\"version\":\"2.0\"," MODEL "}");
}

Test(tokenizer, refuses_merges_of_unknown_tokens) {
    expect_bad(FV_EDATA, "'x'", "{\"model\":{" VOCAB ",\"merges\":[\"a x\"]}}");
    expect_bad(FV_EDATA, "'x'", "{\"model\":{" VOCAB ",\"merges\":[[\"x\",\"a\"]]}}");
    expect_bad(FV_EDATA, "'ba'", "{\"model\":{" VOCAB ",\"merges\":[\"a b\",\"b a\"]}}");
    expect_bad(FV_EDATA, "merge 0", "{\"model\":{" VOCAB ",\"merges\":[\"ab\"]}}");
    expect_bad(FV_EDATA, "merge 0", "{\"model\":{" VOCAB ",\"merges\":[\"a b a\"]}}");
    expect_bad(FV_EDATA, "merge 1", "{\"model\":{" VOCAB ",\"merges\":[\"a b\",[\"a\"]]}}");
    expect_bad(FV_EDATA, "merge 0", "{\"model\":{" VOCAB ",\"merges\":[[\"a\",1]]}}");
    expect_bad(FV_EDATA, "merge 0", "{\"model\":{" VOCAB ",\"merges\":[null]}}");
}

Test(tokenizer, skips_the_version_line_among_merges) {
    fv_tokenizer *tok = small("{\"model\":{" VOCAB ",\"merges\":[\"#version: 0.2\",\"a b\"]}}");
    expect_ids(tok, "ab", 2, "3");
    fv_tokenizer_free(tok);
}

Test(tokenizer, refuses_ids_that_are_doubled_or_absurd) {
    expect_bad(FV_EDATA, "two tokens", "{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}");
    expect_bad(FV_EDATA, "integer", "{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}");
    expect_bad(FV_EDATA, "integer", "{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}");
    expect_bad(FV_EDATA, "integer", "{\"model\":{\"vocab\":{\"a\":\"0\"},\"merges\":[]}}");
    expect_bad(FV_EDATA, "integer", "{\"model\":{\"vocab\":{\"a\":4294967296},\"merges\":[]}}");
    expect_bad(FV_EDATA, "4000000", "{\"model\":{\"vocab\":{\"a\":4000000},\"merges\":[]}}");
}

Test(tokenizer, refuses_added_tokens_whose_ids_the_reference_would_change) {
    expect_bad(FV_EDATA, "added_tokens", "{" MODEL ",\"added_tokens\":{}}");
    expect_bad(FV_EDATA, "content", "{" MODEL ",\"added_tokens\":[{\"id\":6}]}");
    expect_bad(FV_EDATA, "integer", "{" MODEL ",\"added_tokens\":[{\"content\":\"x\"}]}");
    expect_bad(FV_EDATA, "has id 7", "{" MODEL ",\"added_tokens\":[{\"id\":7,\"content\":\"x\"}]}");
    expect_bad(FV_EDATA, "has id 2", "{" MODEL ",\"added_tokens\":[{\"id\":2,\"content\":\"a\"}]}");
    expect_bad(FV_EDATA, "read the same",
               "{" MODEL ",\"added_tokens\":[{\"id\":6,\"content\":\"x\"},"
               "{\"id\":6,\"content\":\"x\"}]}");
}

Test(tokenizer, refuses_added_tokens_that_are_too_long) {
    char json[4096], token[1100];
    memset(token, 'x', sizeof token);
    token[1025] = 0;
    snprintf(json, sizeof json, "{" MODEL ",\"added_tokens\":[{\"id\":6,\"content\":\"%s\"}]}",
             token);
    expect_bad(FV_EDATA, "1024", json);
}

Test(tokenizer, refuses_replacements_that_are_too_long) {
    char json[4096], content[300];
    memset(content, 'x', sizeof content);
    content[257] = 0;
    snprintf(json, sizeof json,
             "{" MODEL ",\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"%s\"}}", content);
    expect_bad(FV_EUNSUPPORTED, "257 bytes", json);
    snprintf(json, sizeof json,
             "{" MODEL ",\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
             "\"content\":\"%s\"}}",
             content);
    expect_bad(FV_EUNSUPPORTED, "257 bytes", json);
}

Test(tokenizer, refuses_unknown_components_by_name) {
    expect_bad(FV_EUNSUPPORTED, "Lowercase", "{" MODEL ",\"normalizer\":{\"type\":\"Lowercase\"}}");
    expect_bad(FV_EDATA, "base64",
               "{" MODEL
               ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
               "{\"type\":\"Precompiled\"}]}}");
    expect_bad(FV_EUNSUPPORTED, "Whitespace",
               "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}");
    expect_bad(FV_EUNSUPPORTED, "RobertaProcessing",
               "{" MODEL ",\"post_processor\":{\"type\":\"RobertaProcessing\"}}");
    expect_bad(FV_EUNSUPPORTED, "WordPiece", "{" MODEL ",\"decoder\":{\"type\":\"WordPiece\"}}");
    expect_bad(FV_EDATA, "has no type", "{" MODEL ",\"decoder\":{}}");
    expect_bad(FV_EDATA, "has no type", "{" MODEL ",\"decoder\":[]}");
    expect_bad(FV_EDATA, "without a list", "{" MODEL ",\"decoder\":{\"type\":\"Sequence\"}}");
}

Test(tokenizer, refuses_broken_patterns_and_quotes_them) {
    expect_bad(FV_EUNSUPPORTED, "'(\\d+|x': end pattern with unmatched parenthesis",
               "{" MODEL
               ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\\\\d+|x\"},"
               "\"behavior\":\"Isolated\",\"invert\":false}}");
    expect_bad(FV_EUNSUPPORTED, "MergedWithNext",
               "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},"
               "\"behavior\":\"MergedWithNext\",\"invert\":false}}");
    expect_bad(FV_EUNSUPPORTED, "String ' '",
               "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
               "\"behavior\":\"MergedWithPrevious\",\"invert\":false}}");
    expect_bad(FV_EUNSUPPORTED, "end pattern",
               "{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"( +\"},"
               "\"content\":\"x\"}}");
    expect_bad(FV_EUNSUPPORTED, "not empty",
               "{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},"
               "\"content\":\"x\"}}");
    expect_bad(FV_EDATA, "pattern",
               "{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\"}}");
}

Test(tokenizer, refuses_metaspace_that_contradicts_itself) {
#define PRE(x) "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":" x "}}"
    expect_bad(FV_EDATA, "one character", PRE("\"\""));
    expect_bad(FV_EDATA, "one character", PRE("\"ab\""));
    expect_bad(FV_EDATA, "sometimes", PRE("\"_\",\"prepend_scheme\":\"sometimes\""));
    expect_bad(FV_EDATA, "no prefix space",
               PRE("\"_\",\"prepend_scheme\":\"first\",\"add_prefix_space\":false"));
    expect_bad(FV_EUNSUPPORTED, "'first'",
               PRE("\"_\",\"prepend_scheme\":\"first\"},\"normalizer\":{\"type\":\"Prepend\","
                   "\"prepend\":\"_\""));
#undef PRE
}

Test(tokenizer, reads_add_prefix_space_of_old_files) {
    fv_tokenizer *tok =
        small("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
              "\"▁\",\"add_prefix_space\":true}}");
    expect_ids(tok, "a", 1, "5");
    fv_tokenizer_free(tok);
    tok = small("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\","
                "\"add_prefix_space\":false}}");
    expect_ids(tok, "a", 1, "1");
    fv_tokenizer_free(tok);
}

Test(tokenizer, refuses_templates_that_do_not_add_up) {
#define POST(single, tokens)                                                                       \
    "{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":" single            \
    ",\"special_tokens\":" tokens "}}"
#define A "{\"Sequence\":{\"id\":\"A\"}}"
    expect_bad(FV_EDATA, "'single'", POST("7", "{}"));
    expect_bad(FV_EDATA, "no kind", POST("[7]", "{}"));
    expect_bad(FV_EDATA, "sequence 'B'", POST("[{\"Sequence\":{\"id\":\"B\"}}]", "{}"));
    expect_bad(FV_EDATA, "'<s>'", POST("[{\"SpecialToken\":{\"id\":\"<s>\"}}," A "]", "{}"));
    expect_bad(FV_EDATA, "no token has",
               POST("[{\"SpecialToken\":{\"id\":\"<s>\"}}," A "]", "{\"<s>\":{\"ids\":[99]}}"));
    expect_bad(FV_EUNSUPPORTED, "2 times", POST("[" A "," A "]", "{}"));
    expect_bad(FV_EUNSUPPORTED, "0 times", POST("[]", "{}"));
#undef A
#undef POST
}

Test(tokenizer, refuses_decoders_whose_stream_would_differ) {
    expect_bad(FV_EUNSUPPORTED, "ByteFallback",
               "{" MODEL ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
               "{\"type\":\"ByteFallback\"}]}}");
    expect_bad(FV_EUNSUPPORTED, "ByteLevel",
               "{" MODEL
               ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},"
               "{\"type\":\"ByteLevel\"}]}}");
}

static void nested(char *json, size_t cap, int depth) {
    size_t n = (size_t)snprintf(json, cap, "{" MODEL ",\"normalizer\":");
    for (int i = 0; i < depth; i++)
        n += (size_t)snprintf(json + n, cap - n, "{\"type\":\"Sequence\",\"normalizers\":[");
    n += (size_t)snprintf(json + n, cap - n, "{\"type\":\"NFC\"}");
    for (int i = 0; i < depth; i++) n += (size_t)snprintf(json + n, cap - n, "]}");
    snprintf(json + n, cap - n, "}");
}

Test(tokenizer, refuses_deep_nesting) {
    enum { CAP = 1 << 20 };
    char *json = malloc(CAP);
    nested(json, CAP, 8);
    fv_tokenizer *tok = small(json);
    fv_tokenizer_free(tok);
    nested(json, CAP, 9);
    expect_bad(FV_EDATA, "8 deep", json);
    nested(json, CAP, 10000);
    expect_bad(FV_EDATA, "JSON", json);
    free(json);
}

Test(tokenizer, refuses_pipelines_without_end) {
    char json[4096] = "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[";
    for (int i = 0; i < 17; i++) strcat(json, i ? ",{\"type\":\"NFC\"}" : "{\"type\":\"NFC\"}");
    strcat(json, "]}}");
    expect_bad(FV_EUNSUPPORTED, "16 steps", json);
}

Test(tokenizer, refuses_texts_that_a_normalizer_would_blow_up) {
    char json[4096] = "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[";
    for (int i = 0; i < 16; i++)
        strcat(strcat(json, i ? "," : ""), "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
                                           "\"content\":\"aaaaaaaa\"}");
    strcat(json, "]}}");
    fv_tokenizer *tok = small(json);
    int32_t *ids, n;
    cr_assert_eq(fv_tokenizer_encode(tok, "aaaa", 4, true, &ids, &n), FV_EINVAL);
    fv_tokenizer_free(tok);
}

/* Text -> ids -> the tokens' bytes. Where the tokenizer puts a space in front, it is in the first. */
Test(tokenizer, the_bytes_of_tokens_are_those_of_the_text) {
    static const char said[] = "Hello, w\xc3\xb6rld!\n\xe4\xbd\xa0 \xf0\x9f\x90\xb8 42";
    static const char *const whole[] = {"llama2", "metaspace-never", "gpt2", "llama3", "qwen2"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        fv_tokenizer *tok = open_form(whole[i], NULL);
        fv_arena arena = {0};
        int32_t *ids, n;
        char joined[256] = "", *piece;
        size_t at = 0, bytes;
        cr_assert_eq(fv_tokenizer_encode(tok, said, sizeof said - 1, false, &ids, &n), FV_OK);
        for (int32_t j = 0; j < n; j++) {
            cr_assert_eq(fv_tokenizer_token_text(tok, ids[j], &arena, &piece, &bytes), FV_OK);
            cr_assert_lt(at + bytes, sizeof joined);
            memcpy(joined + at, piece, bytes + 1);
            at += bytes;
        }
        cr_assert_str_eq(joined + (joined[0] == ' '), said, "%s", whole[i]);
        cr_assert_eq(fv_tokenizer_token_text(tok, -1, &arena, &piece, &bytes), FV_OK);
        cr_assert_eq(bytes, 0);
        cr_assert_eq(fv_tokenizer_token_text(tok, 1 << 30, &arena, &piece, &bytes), FV_OK);
        cr_assert_eq(bytes, 0);
        fv_arena_fini(&arena);
        free(ids);
        fv_tokenizer_free(tok);
    }
}
