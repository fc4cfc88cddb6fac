/* Random answers under JSON Schemas, for grammar_walks.py: reads a schema a line, and writes for each a line with a list of
 * finished answers, or with the sentence of the refusal as a string.
 *
 *     grammar_walk N SEED < schemas */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

enum { ANSWER_MAX = 4000, HURRY = 250 };

static const fv_token_trie *trie;

static void make_bytes(void) {
    static char byte[256];
    const char *text[256];
    size_t bytes[256];
    fv_token_trie *t;
    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        text[i] = &byte[i];
        bytes[i] = 1;
    }
    if (fv_token_trie_make(text, bytes, 256, &t) != FV_OK) exit(1);
    trie = t;
}

static int legal(const uint64_t *bits, int byte) { return bits[byte / 64] >> byte % 64 & 1; }

/* A legal byte: often one that closes something, so that answers end, else any, printable ones rather. */
static int32_t choose(const uint64_t *bits, int32_t n_legal, int32_t n) {
    static const char closing[] = "\"}]";
    int32_t pick = -1;
    if (rand() % 10 < (n > HURRY ? 9 : 2))
        for (int i = 0; i < 3; i++)
            if (legal(bits, closing[i]) && (pick < 0 || rand() % 2)) pick = closing[i];
    for (int tries = 0; pick < 0 || (tries < 3 && (pick < '!' || pick > '~')); tries++) {
        int32_t k = rand() % n_legal;
        for (pick = 0; !legal(bits, pick) || k-- > 0;) pick++;
    }
    return pick;
}

/* Writes an answer; gives its length, -1: none was finished. */
static int32_t walk(fv_grammar *g, char *out) {
    static int32_t answer[ANSWER_MAX];
    fv_matcher *m;
    const uint64_t *bits;
    int32_t n = 0, n_legal, result = -1;
    if (fv_matcher_open(g, trie, false, &m) != FV_OK) return -1;
    while (n < ANSWER_MAX && fv_matcher_seek(m, answer, n) == FV_OK &&
           fv_matcher_mask(m, &bits, &n_legal) == FV_OK) {
        if (fv_matcher_may_end(m) && (n_legal == 0 || n > HURRY || rand() % 4 == 0)) {
            result = n;
            break;
        }
        if (n_legal == 0) exit(3); /* a dead end */
        out[n] = (char)(answer[n] = choose(bits, n_legal, n));
        n++;
    }
    fv_matcher_close(m);
    return result;
}

int main(int argc, char **argv) {
    static char line[1 << 21], out[ANSWER_MAX];
    const int n_walk = argc > 1 ? atoi(argv[1]) : 10;
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
    make_bytes();
    while (fgets(line, sizeof line, stdin)) {
        fv_grammar *g;
        const fv_grammar_spec spec = {
            .kind = FV_GRAMMAR_JSON_SCHEMA, .text = line, .n_text = strcspn(line, "\n")};
        json_t *result = json_array();
        if (fv_grammar_compile(&spec, NULL, &g) != FV_OK) {
            json_decref(result);
            result = json_string(fv_last_error());
        } else {
            for (int i = 0; i < n_walk; i++) {
                const int32_t n = walk(g, out);
                if (n >= 0) json_array_append_new(result, json_stringn(out, (size_t)n));
            }
            fv_grammar_unref(g);
        }
        if (json_dumpf(result, stdout, JSON_ENCODE_ANY) != 0) return 1;
        putchar('\n');
        json_decref(result);
    }
    return 0;
}
