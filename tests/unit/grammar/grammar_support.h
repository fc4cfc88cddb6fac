#ifndef FOVEA_TESTS_UNIT_GRAMMAR_GRAMMAR_SUPPORT_H
#define FOVEA_TESTS_UNIT_GRAMMAR_GRAMMAR_SUPPORT_H

/* Grammars over the 256 bytes as a vocabulary. */
#include <criterion/criterion.h>
#include <string.h>

#include "grammar/grammar.h"

static inline const fv_token_trie *byte_trie(void) {
    static fv_token_trie *trie;
    static char byte[256];
    const char *text[256];
    size_t bytes[256];
    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        text[i] = &byte[i];
        bytes[i] = 1;
    }
    if (!trie) cr_assert_eq(fv_token_trie_make(text, bytes, 256, &trie), FV_OK);
    return trie;
}

static inline fv_status compile(fv_grammar_kind kind, const char *text, fv_grammar **out) {
    const fv_grammar_spec spec = {.kind = kind, .text = text, .n_text = strlen(text)};
    return fv_grammar_compile(&spec, NULL, out);
}

/* 2: a whole legal answer; 1: the beginning of one; 0: neither. */
static inline int reads(fv_grammar *g, const char *answer) {
    fv_matcher *m;
    bool legal = false;
    cr_assert_eq(fv_matcher_open(g, byte_trie(), false, &m), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_matcher_push_text(m, answer, strlen(answer), &legal), FV_OK, "%s",
                 fv_last_error());
    const int result = !legal ? 0 : fv_matcher_may_end(m) ? 2 : 1;
    fv_matcher_close(m);
    return result;
}

/* Lists end with NULL. */
static inline void check_answers(fv_grammar_kind kind, const char *text, const char *const *good,
                                 const char *const *bad) {
    fv_grammar *g;
    cr_assert_eq(compile(kind, text, &g), FV_OK, "%s: %s", text, fv_last_error());
    for (; *good; good++) cr_expect_eq(reads(g, *good), 2, "%s should allow %s", text, *good);
    for (; *bad; bad++) cr_expect_neq(reads(g, *bad), 2, "%s should not allow %s", text, *bad);
    fv_grammar_unref(g);
}

static inline void check_refused(fv_grammar_kind kind, const char *text, const char *words) {
    fv_grammar *g = NULL;
    cr_expect_eq(compile(kind, text, &g), FV_EINVAL, "%s should be refused", text);
    cr_expect(strstr(fv_last_error(), words), "%s: '%s' should say '%s'", text, fv_last_error(),
              words);
    fv_grammar_unref(g);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

#endif
