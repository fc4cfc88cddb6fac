/* Classes and escapes of regular expressions. \d and \w are ASCII, as in ECMAScript; \D and \W are the other ASCII
 * characters, so that their texts match where a reader takes the classes for Unicode's. \s is Unicode's. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

static const fv_span digits[] = {{'0', '9'}};
static const fv_span not_digits[] = {{0, '0' - 1}, {'9' + 1, 0x7F}};
static const fv_span word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const fv_span not_word[] = {
    {0, '0' - 1}, {'9' + 1, 'A' - 1}, {'Z' + 1, '_' - 1}, {'_' + 1, 'a' - 1}, {'z' + 1, 0x7F}};
static const fv_span spaces[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},
                                 {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                 {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
/* Characters that are white space to some readers and not to others are in neither \s nor \S. */
static const fv_span any_spaces[] = {{9, 13},          {0x1C, 0x20},     {0x85, 0x85},
                                     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x180E, 0x180E},
                                     {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                     {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

#define SET(spans) fv_expr_set(c, spans, sizeof(spans) / sizeof *(spans), out)

static fv_status not_space(fv_compile *c, fv_expr **out) {
    fv_expr *e;
    FV_TRY(fv_expr_set(c, any_spaces, sizeof any_spaces / sizeof *any_spaces, &e));
    return fv_expr_not(c, e, out);
}

static int hex_digit(char x) {
    if (x >= '0' && x <= '9') return x - '0';
    x |= 0x20;
    return x >= 'a' && x <= 'f' ? x - 'a' + 10 : -1;
}

/* n digits at *at; false: there are not as many. */
static bool hex(const char *s, size_t n_text, size_t *at, size_t n, int32_t *out) {
    int32_t x = 0;
    if (n_text - *at < n) return false;
    for (size_t i = 0; i < n; i++) {
        const int d = hex_digit(s[*at + i]);
        if (d < 0) return false;
        x = x * 16 + d;
    }
    *at += n;
    *out = x;
    return true;
}

/* \u{1F600}, \u00e9, or two halves. */
static bool unicode(const char *s, size_t n, size_t *at, int32_t *cp) {
    int32_t low;
    if (*at < n && s[*at] == '{') {
        size_t end = ++*at;
        while (end < n && end - *at < 7 && s[end] != '}') end++;
        const bool good = end < n && s[end] == '}' && end > *at && hex(s, end, at, end - *at, cp);
        ++*at;
        return good && *cp <= FV_CP_MAX;
    }
    if (!hex(s, n, at, 4, cp)) return false;
    if (*cp >= 0xD800 && *cp < 0xDC00 && n - *at >= 6 && s[*at] == '\\' && s[*at + 1] == 'u') {
        size_t after = *at + 2;
        if (!hex(s, n, &after, 4, &low) || low < 0xDC00 || low > 0xDFFF) return false;
        *at = after;
        *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
    }
    return *cp < 0xD800 || *cp > 0xDFFF;
}

/* The character of an escape whose letter is at *at. */
static fv_status escaped_character(const char *s, size_t n, size_t *at, int32_t *cp) {
    static const char letters[] = "nrtfv", values[] = "\n\r\t\f\v";
    const char letter = s[*at];
    const char *known = strchr(letters, letter);
    const size_t from = *at;
    if (letter && known) {
        ++*at;
        *cp = values[known - letters];
        return FV_OK;
    }
    if (letter == '0' && (n - *at < 2 || s[*at + 1] < '0' || s[*at + 1] > '9')) {
        ++*at;
        *cp = 0;
        return FV_OK;
    }
    if (letter == 'c' && n - *at >= 2 &&
        ((s[*at + 1] | 0x20) >= 'a' && (s[*at + 1] | 0x20) <= 'z')) {
        *cp = s[*at + 1] & 0x1F;
        *at += 2;
        return FV_OK;
    }
    if (letter == 'x' || letter == 'u') {
        ++*at;
        if (letter == 'x' ? hex(s, n, at, 2, cp) : unicode(s, n, at, cp)) return FV_OK;
    } else if (!((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z') &&
               !(letter >= '0' && letter <= '9')) {
        *at += fv_cp_next(s + *at, n - *at, cp);
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "the escape \\%.*s at byte %zu is not supported",
                   (int)(n - from < 6 ? n - from : 6), s + from, from - 1);
}

fv_status fv_regex_escape(fv_compile *c, const char *s, size_t n, size_t *at, fv_expr **out) {
    int32_t cp;
    if (++*at >= n) return FV_FAIL(FV_EINVAL, "a backslash at the end");
    switch (s[*at]) {
    case 'd': ++*at; return SET(digits);
    case 'D': ++*at; return SET(not_digits);
    case 'w': ++*at; return SET(word);
    case 'W': ++*at; return SET(not_word);
    case 's': ++*at; return SET(spaces);
    case 'S': ++*at; return not_space(c, out);
    }
    FV_TRY(escaped_character(s, n, at, &cp));
    return fv_expr_set(c, &(fv_span){cp, cp}, 1, out);
}

/* A member of a class: a character or an escape. */
static fv_status member(fv_compile *c, const char *s, size_t n, size_t *at, fv_expr **out) {
    int32_t cp;
    if (s[*at] == '\\' && n - *at > 1 && s[*at + 1] == 'b') {
        *at += 2;
        return fv_expr_set(c, &(fv_span){'\b', '\b'}, 1, out);
    }
    if (s[*at] == '\\') return fv_regex_escape(c, s, n, at, out);
    *at += fv_cp_next(s + *at, n - *at, &cp);
    return fv_expr_set(c, &(fv_span){cp, cp}, 1, out);
}

static bool is_one(const fv_expr *e) { return e->n == 1 && e->span[0].lo == e->span[0].hi; }

static fv_status add_spans(fv_span **list, size_t *n, size_t *cap, const fv_span *span,
                           int32_t n_span) {
    for (int32_t i = 0; i < n_span; i++) {
        FV_TRY(fv_grow(list, cap, *n + 1, sizeof **list));
        (*list)[(*n)++] = span[i];
    }
    return FV_OK;
}

static fv_status members(fv_compile *c, const char *s, size_t n, size_t *at, fv_span **list,
                         size_t *n_list) {
    size_t cap = 0;
    fv_expr *low, *high;
    while (*at < n && s[*at] != ']') {
        const size_t from = *at;
        FV_TRY(member(c, s, n, at, &low));
        if (is_one(low) && n - *at >= 2 && s[*at] == '-' && s[*at + 1] != ']') {
            const size_t dash = (*at)++;
            FV_TRY(member(c, s, n, at, &high));
            if (is_one(high)) {
                const fv_span span = {low->span[0].lo, high->span[0].hi};
                if (span.lo > span.hi)
                    return FV_FAIL(FV_EINVAL, "the range at byte %zu is in the wrong order", from);
                FV_TRY(add_spans(list, n_list, &cap, &span, 1));
                continue;
            }
            *at = dash + 1; /* [a-\d]: the dash is itself */
            FV_TRY(add_spans(list, n_list, &cap, &(fv_span){'-', '-'}, 1));
        }
        FV_TRY(add_spans(list, n_list, &cap, low->span, low->n));
    }
    return FV_OK;
}

fv_status fv_regex_class(fv_compile *c, const char *s, size_t n, size_t *at, fv_expr **out) {
    const size_t from = (*at)++;
    const bool without = *at < n && s[*at] == '^';
    fv_span *list = NULL;
    size_t n_list = 0;
    fv_expr *e;
    *at += without;
    fv_status st = members(c, s, n, at, &list, &n_list);
    if (st == FV_OK && *at >= n)
        st = FV_FAIL(FV_EINVAL, "the class at byte %zu is not closed", from);
    if (st == FV_OK) st = fv_expr_set(c, list, n_list, &e);
    free(list);
    FV_TRY(st);
    ++*at;
    if (without) return fv_expr_not(c, e, out);
    *out = e;
    return FV_OK;
}
