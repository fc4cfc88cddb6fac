#ifndef FOVEA_POLICY_WORDS_INTERNAL_H
#define FOVEA_POLICY_WORDS_INTERNAL_H

/* Pieces of the text form. Nobody outside of this folder includes it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct word {
    const char *s;
    size_t n;
} word;

static inline bool word_is(word w, const char *s) {
    return strlen(s) == w.n && memcmp(w.s, s, w.n) == 0;
}

/* Cuts [*p, end) at the first `sep`; false at the end of the text. */
static inline bool next_word(const char **p, const char *end, char sep, word *out) {
    if (*p >= end) return false;
    const char *stop = memchr(*p, sep, (size_t)(end - *p));
    if (!stop) stop = end;
    *out = (word){*p, (size_t)(stop - *p)};
    *p = stop + 1;
    return true;
}

static inline bool split(word w, char sep, word *left, word *right) {
    const char *at = memchr(w.s, sep, w.n);
    if (!at) return false;
    *left = (word){w.s, (size_t)(at - w.s)};
    *right = (word){at + 1, (size_t)(w.s + w.n - at - 1)};
    return true;
}

static inline void join_names(char *out, size_t cap, const char *name) {
    size_t n = strlen(out);
    snprintf(out + n, cap - n, "%s%s", n ? ", " : "", name);
}

#endif
