/* Characters and parts of strings. */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/internal.h"

size_t fv_jj_char(const char *s, size_t n, int32_t *cp) {
    utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, cp);
    if (len > 0) return (size_t)len;
    *cp = 0xfffd;
    return 1;
}

int64_t fv_jj_chars(fv_jj_run *r, fv_jj_str s) {
    int64_t n = 0;
    int32_t cp;
    fv_jj_spend(r, fv_jj_reading(s.n));
    for (size_t at = 0; at < s.n; n++) at += fv_jj_char(s.s + at, s.n - at, &cp);
    return n;
}

size_t fv_jj_byte_of(fv_jj_run *r, fv_jj_str s, int64_t index) {
    size_t at = 0;
    int32_t cp;
    for (; index > 0 && at < s.n; index--) at += fv_jj_char(s.s + at, s.n - at, &cp);
    fv_jj_spend(r, fv_jj_reading(at));
    return at;
}

bool fv_jj_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

fv_jj_str fv_jj_sub(fv_jj_str s, size_t from, size_t to) {
    return (fv_jj_str){.s = s.s + from, .n = to - from, .user = s.user ? s.user + from : NULL};
}

static bool among(fv_jj_str s, size_t at, size_t len, const fv_jj_str *set) {
    int32_t cp, other;
    fv_jj_char(s.s + at, s.n - at, &cp);
    if (!set) return fv_jj_is_space(cp);
    for (size_t i = 0, n; i < set->n; i += n) {
        n = fv_jj_char(set->s + i, set->n - i, &other);
        if (n == len && memcmp(s.s + at, set->s + i, n) == 0) return true;
    }
    return false;
}

fv_jj_str fv_jj_strip(fv_jj_str s, const fv_jj_str *set, bool left, bool right) {
    size_t from = 0, to = s.n, at;
    int32_t cp;
    while (left && from < to) {
        size_t len = fv_jj_char(s.s + from, to - from, &cp);
        if (!among(s, from, len, set)) break;
        from += len;
    }
    while (right && to > from) {
        at = to - 1;
        while (at > from && to - at < 4 && ((unsigned char)s.s[at] & 0xc0) == 0x80) at--;
        if (fv_jj_char(s.s + at, to - at, &cp) != to - at) at = to - 1;
        if (!among(fv_jj_sub(s, 0, to), at, to - at, set)) break;
        to = at;
    }
    return fv_jj_sub(s, from, to);
}

size_t fv_jj_find(fv_jj_run *r, fv_jj_str s, fv_jj_str what, size_t from) {
    fv_jj_spend(r, 1);
    if (from > s.n || what.n > s.n - from) return SIZE_MAX;
    if (what.n == 0) return from;
    const char *found = memmem(s.s + from, s.n - from, what.s, what.n);
    size_t at = found ? (size_t)(found - s.s) : s.n;
    fv_jj_spend(r, fv_jj_reading(at - from + what.n));
    return found ? at : SIZE_MAX;
}

bool fv_jj_str_is(fv_jj_str s, const char *word) {
    return s.n == strlen(word) && memcmp(s.s, word, s.n) == 0;
}
