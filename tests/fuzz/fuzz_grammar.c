/* A kind of grammar, a NUL-terminated answer, and a spec: '0' to '6', answer, NUL, spec. Any spec ends within its bounds
 * with a grammar or a sentence; the answer is read as far as it is legal, the same twice, and at each byte the mask says what
 * is. Vocabulary: the 256 bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static const fv_token_trie *bytes_trie(void) {
    static fv_token_trie *trie;
    static char byte[256];
    const char *text[256];
    size_t bytes[256];
    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        text[i] = &byte[i];
        bytes[i] = 1;
    }
    if (!trie) expect(fv_token_trie_make(text, bytes, 256, &trie) == FV_OK);
    return trie;
}

/* Reads the answer as tokens until one is not legal; gives how many were. */
static int32_t read_answer(fv_grammar *g, const int32_t *answer, int32_t n) {
    fv_matcher *m;
    const uint64_t *bits;
    int32_t n_legal, i = 0;
    if (fv_matcher_open(g, bytes_trie(), false, &m) != FV_OK) return -1;
    while (i < n && fv_matcher_mask(m, &bits, &n_legal) == FV_OK) {
        const bool legal = bits[answer[i] / 64] >> answer[i] % 64 & 1;
        expect(n_legal > 0 || fv_matcher_may_end(m));
        fv_status st = fv_matcher_seek(m, answer, i + 1);
        expect(st == FV_OK ? legal : st == FV_EINVAL && *fv_last_error());
        if (st != FV_OK) break;
        i++;
    }
    fv_matcher_close(m);
    return i;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const fv_grammar_limits limits = {
        .compile_steps = 300000, .mask_steps = 100000, .bytes = 1 << 20};
    const uint8_t *end = n > 1 ? memchr(data + 1, '\0', n - 1) : NULL;
    fv_grammar *g;
    if (!end || end - data > 256) return 0;
    const char *text = (const char *)end + 1;
    char *copy = strndup(text, n - (size_t)(text - (const char *)data));
    const char *choice[] = {copy, "other"};
    const fv_grammar_spec spec = {.kind = (fv_grammar_kind)(data[0] - '0'),
                                  .text = text,
                                  .n_text = n - (size_t)(text - (const char *)data),
                                  .choice = choice,
                                  .n_choice = 2};
    int32_t answer[256], n_answer = 0;
    for (const uint8_t *p = data + 1; p < end; p++) answer[n_answer++] = *p;
    fv_status st = fv_grammar_compile(&spec, &limits, &g);
    if (st == FV_OK) {
        expect(read_answer(g, answer, n_answer) == read_answer(g, answer, n_answer));
        fv_grammar_unref(g);
    } else {
        expect(st == FV_EINVAL && *fv_last_error());
    }
    free(copy);
    return 0;
}
