/* Gemma's calls: call:NAME{a:<escape>text<escape>,n:1,l:[true,null],o:{k:2}}. FunctionGemma quotes
 * strings with <escape>, Gemma 4 with <|"|>. Any thread. */
#include <stdlib.h>
#include <string.h>

#include "text/calls/internal.h"

static const char prefix[] = "call:";
static const char *const quotes[] = {"<escape>", "<|\"|>"};

enum { BEGINNING, NAME, INSIDE }; /* phases; in a string, scan->from is its quote + 1 */
enum { DEPTH_MAX = 64 };

/* The quote that begins at s[n]; -1: none. *part: one may, once more has come. */
static int quote_at(const char *s, size_t n, bool *part) {
    for (int i = 0; i < 2; i++) {
        const size_t all = strlen(quotes[i]), some = n < all ? n : all;
        if (memcmp(s, quotes[i], some) != 0) continue;
        if (some == all) return i;
        *part = true;
    }
    return -1;
}

static fv_scan_end scan_name(fv_scan *scan, const char *s, size_t n) {
    for (; scan->phase == BEGINNING; scan->phase = NAME) {
        while (scan->at < n && fv_calls_is_space(s[scan->at])) scan->at++;
        const size_t left = n - scan->at, all = sizeof prefix - 1, some = left < all ? left : all;
        if (memcmp(s + scan->at, prefix, some) != 0) return FV_SCAN_NONE;
        if (some < all) return FV_SCAN_MORE;
        scan->at += all;
        scan->depth = 0;
    }
    for (; scan->at < n; scan->at++) {
        if (s[scan->at] == '{') {
            scan->phase = INSIDE;
            scan->depth = 0;
            return FV_SCAN_DONE;
        }
        if (++scan->depth > FV_CALLS_NAME_MAX || fv_calls_is_space(s[scan->at]))
            return FV_SCAN_NONE;
    }
    return FV_SCAN_MORE;
}

fv_scan_end fv_scan_gemma(fv_scan *scan, const char *s, size_t n) {
    if (scan->phase != INSIDE) {
        fv_scan_end end = scan_name(scan, s, n);
        if (end != FV_SCAN_DONE) return end;
    }
    while (scan->at < n) {
        bool part = false;
        const char c = s[scan->at];
        const int quote = c == '<' ? quote_at(s + scan->at, n - scan->at, &part) : -1;
        if (quote < 0 && part) return FV_SCAN_MORE;
        if (quote >= 0 && (scan->from == 0 || scan->from == (size_t)quote + 1)) {
            scan->from = scan->from ? 0 : (size_t)quote + 1;
            scan->at += strlen(quotes[quote]);
            continue;
        }
        scan->at++;
        if (scan->from) continue; /* in a string */
        if (c == '{' || c == '[') scan->depth++;
        if ((c == '}' || c == ']') && --scan->depth == 0) return FV_SCAN_DONE;
        if (scan->depth > DEPTH_MAX) return FV_SCAN_NONE;
    }
    return FV_SCAN_MORE;
}

/* ---- values ------------------------------------------------------------------------------ */

typedef struct reading {
    const char *s, *end;
} reading;

static void skip_space(reading *r) {
    while (r->s < r->end && fv_calls_is_space(*r->s)) r->s++;
}

static bool take(reading *r, char c) {
    skip_space(r);
    if (r->s == r->end || *r->s != c) return false;
    r->s++;
    return true;
}

static json_t *read_value(reading *r);

/* A string between quotes; NULL: none begins here, or it has no end. */
static json_t *read_quoted(reading *r) {
    bool part;
    const int quote = quote_at(r->s, (size_t)(r->end - r->s), &part);
    if (quote < 0) return NULL;
    const size_t n = strlen(quotes[quote]);
    const char *from = r->s + n, *stop = memmem(from, (size_t)(r->end - from), quotes[quote], n);
    if (!stop) return NULL;
    r->s = stop + n;
    return json_stringn(from, (size_t)(stop - from));
}

/* A number or a word up to the next separator. */
static json_t *read_bare(reading *r) {
    const char *from = r->s;
    while (r->s < r->end && !strchr(",}]", *r->s)) r->s++;
    size_t n = (size_t)(r->s - from);
    while (n > 0 && fv_calls_is_space(from[n - 1])) n--;
    return n == 0 || memchr("\"{[", *from, 3) ? NULL : fv_calls_parse(from, n);
}

static bool read_member(reading *r, json_t *to) {
    const char *from, *colon;
    skip_space(r);
    json_t *quoted = r->s < r->end && *r->s == '<' ? read_quoted(r) : NULL;
    from = quoted ? json_string_value(quoted) : r->s;
    colon = memchr(r->s, ':', (size_t)(r->end - r->s));
    const size_t n = quoted ? json_string_length(quoted) : colon ? (size_t)(colon - r->s) : 0;
    bool is = colon && n > 0;
    if (is) {
        r->s = colon + 1;
        is = json_object_setn_new(to, from, n, read_value(r)) == 0;
    }
    json_decref(quoted);
    return is;
}

/* The members or items up to the closing bracket. */
static bool read_all(reading *r, char closes, json_t *to) {
    if (take(r, closes)) return true;
    for (;;) {
        const bool is =
            json_is_object(to) ? read_member(r, to) : json_array_append_new(to, read_value(r)) == 0;
        if (!is) return false;
        if (take(r, closes)) return true;
        if (!take(r, ',')) return false;
    }
}

/* The scan has bounded the depth. NULL: this is no value. */
static json_t *read_value(reading *r) {
    skip_space(r);
    if (r->s == r->end) return NULL;
    const bool object = *r->s == '{';
    if (!object && *r->s != '[') return *r->s == '<' ? read_quoted(r) : read_bare(r);
    json_t *v = object ? json_object() : json_array();
    r->s++;
    if (v && read_all(r, object ? '}' : ']', v)) return v;
    json_decref(v);
    return NULL;
}

fv_status fv_read_gemma(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                        bool *is) {
    char name[FV_CALLS_NAME_MAX + 1];
    fv_status st = FV_OK;
    (void)scan;
    const char *from = s;
    while (fv_calls_is_space(*from)) from++; /* the scan has found the prefix behind space */
    from += sizeof prefix - 1;
    const char *brace = memchr(from, '{', (size_t)(s + n - from));
    const size_t n_name = (size_t)(brace - from);
    if (n_name > FV_CALLS_NAME_MAX) return FV_OK;
    memcpy(name, from, n_name);
    name[n_name] = '\0';
    if (!fv_calls_takes(p, name)) return FV_OK;
    reading r = {brace, s + n};
    json_t *arguments = read_value(&r);
    *is = json_is_object(arguments);
    if (*is) st = fv_calls_report(p, name, arguments);
    json_decref(arguments);
    return st;
}
