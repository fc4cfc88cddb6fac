#ifndef FOVEA_POLICY_WORDS_INTERNAL_H
#define FOVEA_POLICY_WORDS_INTERNAL_H

/* Helpers to parse the text form, for this folder only. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/suggest.h"

typedef struct word {
    const char *s;
    size_t n;
} word;

static inline word word_of(const char *s) { return (word){s, strlen(s)}; }

static inline bool word_is(word w, const char *s) {
    return strlen(s) == w.n && memcmp(w.s, s, w.n) == 0;
}

/* Trims white space. */
static inline word trimmed(const char *s, const char *end) {
    static const char space[] = " \t\r\n";
    while (s < end && memchr(space, *s, sizeof space - 1)) s++;
    while (s < end && memchr(space, end[-1], sizeof space - 1)) end--;
    return (word){s, (size_t)(end - s)};
}

/* Returns the text of [*p, end) up to the first `sep`, trimmed, and advances *p; false at the
 * end. */
static inline bool next_word(const char **p, const char *end, char sep, word *out) {
    if (*p >= end) return false;
    const char *stop = memchr(*p, sep, (size_t)(end - *p));
    if (!stop) stop = end;
    *out = trimmed(*p, stop);
    *p = stop + 1;
    return true;
}

static inline bool split(word w, char sep, word *left, word *right) {
    const char *at = memchr(w.s, sep, w.n);
    if (!at) return false;
    *left = trimmed(w.s, at);
    *right = trimmed(at + 1, w.s + w.n);
    return true;
}

/* Names that a word may have, for error messages. */
typedef struct names {
    char all[512];
    fv_suggestion near;
    char hint[FV_SUGGEST_MAX];
} names;

static inline void names_init(names *l, word w) {
    l->all[0] = '\0';
    l->near = fv_suggest_for(w.s, w.n);
}

static inline void names_add(names *l, const char *name) {
    size_t n = strlen(l->all);
    snprintf(l->all + n, sizeof l->all - n, "%s%s", n ? ", " : "", name);
    fv_suggest_try(&l->near, name);
}

/* "; did you mean 'x'?" or "". */
static inline const char *names_hint(names *l) { return fv_suggest_text(&l->near, l->hint); }

#endif
