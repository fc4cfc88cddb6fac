/* GRAMMARS: how long compiling a JSON Schema takes, and finding the legal tokens of a step, for a vocabulary of 152 000
 * tokens: bytes, all pairs of printable characters, words of syllables with and without a space, Chinese characters.
 *
 * Schemas come from files {"schema": ..., "tests": [{"valid": true, "data": ...}]}, the form of JSONSchemaBench's data;
 * --list names a file with their paths, one a line. Each valid instance is cut into the longest tokens, and the mask of each step is
 * timed, with a grammar that has been compiled for this schema and used by no other answer before. Without --list, two
 * schemas of our own. One thread; CPU time.
 *
 *     bench_grammar --list schemas.txt */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"
#include "common/grow.h"
#include "grammar/grammar.h"

enum { VOCAB = 152000, TOKEN_MAX = 32 };

static char token[VOCAB][TOKEN_MAX];
static const char *text[VOCAB];
static size_t bytes[VOCAB];
static int32_t n_vocab;

static void add(const char *s, size_t n) {
    if (n_vocab == VOCAB || n >= TOKEN_MAX) return;
    memcpy(token[n_vocab], s, n);
    text[n_vocab] = token[n_vocab];
    bytes[n_vocab++] = n;
}

static void add_word(const char *a, const char *b, const char *c) {
    char s[TOKEN_MAX + 8];
    const int n = snprintf(s, sizeof s, " %s%s%s", a, b, c);
    add(s, (size_t)n);
    add(s + 1, (size_t)n - 1);
}

static fv_token_trie *make_vocabulary(void) {
    static const char *const syllable[] = {
        "a",   "be",   "con", "de",  "e",   "for", "gra", "hi",  "in",   "ja",  "ka",
        "lo",  "ment", "ne",  "on",  "pro", "qui", "re",  "sta", "tion", "un",  "ver",
        "wa",  "xe",   "y",   "zo",  "ing", "er",  "ly",  "al",  "ist",  "est", "ty",
        "com", "per",  "par", "sub", "dis", "ab",  "ac",  "ad",  "um"};
    static const char *const marks[] = {
        "{\"", "\":", "\",", "\":\"", "\",\"",  "\"}",    "[{", "}]",   "},{",      "],",  "[\"",
        "\"]", " {",  ": ",  ", ",    "\": \"", "\", \"", "  ", "    ", "        ", "\n\n"};
    enum { N = sizeof syllable / sizeof *syllable };
    fv_token_trie *t;
    for (int i = 0; i < 256; i++) add((char[]){(char)i}, 1);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) add(marks[i], strlen(marks[i]));
    for (int a = 32; a < 127; a++)
        for (int b = 32; b < 127; b++) add((char[]){(char)a, (char)b}, 2);
    for (int i = 0; i < 20000; i++) { /* U+4E00.. */
        const int cp = 0x4E00 + i;
        add((char[]){(char)(0xE0 | cp >> 12), (char)(0x80 | (cp >> 6 & 63)),
                     (char)(0x80 | (cp & 63))},
            3);
    }
    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++) add_word(syllable[a], syllable[b], "");
    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++)
            for (int c = 0; c < N; c++) add_word(syllable[a], syllable[b], syllable[c]);
    return fv_token_trie_make(text, bytes, n_vocab, &t) == FV_OK ? t : NULL;
}

/* ---- times --------------------------------------------------------------------------------- */

typedef struct times {
    double *s;
    size_t n, cap;
} times;

static void note(times *t, double s) {
    if (fv_grow(&t->s, &t->cap, t->n + 1, sizeof *t->s) == FV_OK) t->s[t->n++] = s;
}

static int by_time(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *what, times *t) {
    if (!t->n) return;
    qsort(t->s, t->n, sizeof *t->s, by_time);
    printf("%-10s %8zu  p50 %9.1f us  p90 %9.1f us  p99 %9.1f us  most %9.1f us\n", what, t->n,
           1e6 * t->s[t->n / 2], 1e6 * t->s[t->n * 9 / 10], 1e6 * t->s[t->n * 99 / 100],
           1e6 * t->s[t->n - 1]);
}

static struct {
    const fv_token_trie *trie;
    times compile, mask;
    int n_schema, n_compiled, n_instance, n_accepted;
} all;

/* The longest legal token that the rest of the text begins with, -1: none. */
static int32_t next_token(const char *rest, size_t n, const uint64_t *bits) {
    int32_t best = -1;
    for (int32_t i = 0; i < n_vocab; i++)
        if (bytes[i] <= n && (best < 0 || bytes[i] > bytes[best]) && bits[i / 64] >> i % 64 & 1 &&
            memcmp(text[i], rest, bytes[i]) == 0)
            best = i;
    return best;
}

static bool run_instance(fv_grammar *g, const char *s) {
    fv_matcher *m;
    int32_t *answer = malloc((strlen(s) + 1) * sizeof *answer), n = 0, n_legal;
    const uint64_t *bits;
    bool good = answer && fv_matcher_open(g, all.trie, false, &m) == FV_OK;
    if (!good) {
        free(answer);
        return false;
    }
    while (good) {
        const double begin = bench_cpu_s(0);
        good =
            fv_matcher_seek(m, answer, n) == FV_OK && fv_matcher_mask(m, &bits, &n_legal) == FV_OK;
        if (good) note(&all.mask, bench_cpu_s(0) - begin);
        if (!*s) break;
        if (good) good = (answer[n] = next_token(s, strlen(s), bits)) >= 0;
        if (good) s += bytes[answer[n++]];
    }
    good = good && fv_matcher_may_end(m);
    fv_matcher_close(m);
    free(answer);
    return good;
}

static void run_schema(const char *name, const json_t *file) {
    char *schema = json_dumps(json_object_get(file, "schema"), JSON_COMPACT | JSON_ENCODE_ANY);
    const json_t *tests = json_object_get(file, "tests");
    if (!schema) return;
    const fv_grammar_spec spec = {
        .kind = FV_GRAMMAR_JSON_SCHEMA, .text = schema, .n_text = strlen(schema)};
    fv_grammar *g;
    const double begin = bench_cpu_s(0);
    const fv_status st = fv_grammar_compile(&spec, NULL, &g);
    note(&all.compile, bench_cpu_s(0) - begin);
    all.n_schema++;
    all.n_compiled += st == FV_OK;
    if (st != FV_OK) printf("refused    %s: %s\n", name, fv_last_error());
    for (size_t i = 0; st == FV_OK && i < json_array_size(tests); i++) {
        const json_t *t = json_array_get(tests, i);
        if (!json_is_true(json_object_get(t, "valid"))) continue;
        char *s = json_dumps(json_object_get(t, "data"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        all.n_instance++;
        all.n_accepted += s && run_instance(g, s);
        free(s);
    }
    if (st == FV_OK) fv_grammar_unref(g);
    free(schema);
}

static void run_list(const char *path) {
    char line[4096];
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        json_t *file = json_load_file(line, JSON_ALLOW_NUL, NULL);
        if (file) run_schema(line, file);
        json_decref(file);
    }
    if (f) fclose(f);
}

static const char own[] =
    "[{\"schema\":{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\","
    "\"maxLength\":80},\"tags\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"string\"}},\"n\":{\"type\":\"integer\",\"minimum\":0,"
    "\"maximum\":999}},\"required\":"
    "[\"title\",\"n\"]},\"tests\":[{\"valid\":true,\"data\":{\"title\":\"a concept of proving "
    "statements\",\"tags\":"
    "[\"one\",\"comparing "
    "things\"],\"n\":12}}]},{\"schema\":{\"type\":\"string\",\"format\":\"date-time\"},\"tests\":"
    "[{\"valid\":true,\"data\":\"2024-01-31T23:59:00Z\"}]}]";

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"list", NULL, FV_OPTION_STRING, "FILE", NULL, "paths of files with schemas and instances",
         0, 0},
    };
    fv_options *o = bench_options(table, 1, argc, argv, "bench_grammar [--list FILE]",
                                  "Times of schemas and of their masks.");
    const char *list = fv_options_string(o, "list");
    const double begin = bench_cpu_s(0);
    all.trie = make_vocabulary();
    if (!all.trie) return 1;
    printf("trie of %d tokens: %.3f s\n", n_vocab, bench_cpu_s(0) - begin);
    if (list) {
        run_list(list);
    } else {
        json_t *schemas = json_loads(own, 0, NULL);
        for (size_t i = 0; i < json_array_size(schemas); i++)
            run_schema("own", json_array_get(schemas, i));
        json_decref(schemas);
    }
    printf("%d of %d schemas compile; %d of %d valid instances are legal\n", all.n_compiled,
           all.n_schema, all.n_accepted, all.n_instance);
    print("compile", &all.compile);
    print("mask", &all.mask);
    return 0;
}
