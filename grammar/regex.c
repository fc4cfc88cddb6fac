/* Regular expressions, in ECMAScript's syntax as JSON Schema uses it: text -> an expression over characters.
 *
 * Supported are alternatives, groups of all kinds that capture or do not, classes, the escapes of regex_set.c, and
 * repetitions; whether one is lazy changes nothing about which texts match. What looks around, refers back, or asks
 * for the border of a word is refused. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

typedef struct reader {
    fv_compile *c;
    const char *s;
    size_t n, at;
    int depth;
} reader;

static bool next_is(const reader *r, const char *what) {
    const size_t n = strlen(what);
    return r->n - r->at >= n && memcmp(r->s + r->at, what, n) == 0;
}

static bool take(reader *r, const char *what) {
    if (!next_is(r, what)) return false;
    r->at += strlen(what);
    return true;
}

static fv_status alternatives(reader *r, fv_expr **out);

/* Skips "?:", "?<name>" or "?P<name>" after a parenthesis. */
static fv_status group_kind(reader *r) {
    const size_t from = r->at;
    if (!take(r, "?") || take(r, ":")) return FV_OK;
    take(r, "P");
    if (next_is(r, "<") && !next_is(r, "<=") && !next_is(r, "<!")) {
        const char *end = memchr(r->s + r->at, '>', r->n - r->at);
        if (end) {
            r->at = (size_t)(end - r->s) + 1;
            return FV_OK;
        }
    }
    return FV_FAIL(
        FV_EINVAL,
        "the group (%.*s at byte %zu is not supported: no lookahead, lookbehind or flags",
        (int)(r->n - from > 3 ? 3 : r->n - from), r->s + from, from);
}

static fv_status any_character(fv_compile *c, fv_expr **out) {
    static const fv_span ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    fv_expr *e;
    FV_TRY(fv_expr_set(c, ends, 3, &e));
    return fv_expr_not(c, e, out);
}

static fv_status one_of_kind(reader *r, fv_expr_kind kind, fv_expr **out) {
    r->at++;
    return fv_expr_list(r->c, kind, NULL, 0, out);
}

static fv_status atom(reader *r, fv_expr **out) {
    int32_t cp;
    switch (r->s[r->at]) {
    case '(':
        r->at++;
        FV_TRY(group_kind(r));
        if (++r->depth > FV_EXPR_DEPTH_MAX / 2)
            return FV_FAIL(FV_EINVAL, "groups are nested more than %d deep", FV_EXPR_DEPTH_MAX / 2);
        FV_TRY(alternatives(r, out));
        r->depth--;
        return take(r, ")") ? FV_OK : FV_FAIL(FV_EINVAL, "a group is not closed");
    case '[': return fv_regex_class(r->c, r->s, r->n, &r->at, out);
    case '\\': return fv_regex_escape(r->c, r->s, r->n, &r->at, out);
    case '^': return one_of_kind(r, FV_EXPR_BEGIN, out);
    case '$': return one_of_kind(r, FV_EXPR_END, out);
    case '.': r->at++; return any_character(r->c, out);
    case '*':
    case '+':
    case '?': return FV_FAIL(FV_EINVAL, "nothing to repeat at byte %zu", r->at);
    }
    r->at += fv_cp_next(r->s + r->at, r->n - r->at, &cp);
    return fv_expr_set(r->c, &(fv_span){cp, cp}, 1, out);
}

static bool number(reader *r, int64_t *out) {
    int64_t x = 0;
    const size_t from = r->at;
    for (; r->at < r->n && r->s[r->at] >= '0' && r->s[r->at] <= '9'; r->at++)
        if (x < INT32_MAX) x = x * 10 + (r->s[r->at] - '0');
    *out = x;
    return r->at > from;
}

/* "{2}", "{2,}", "{2,5}"; false: an ordinary brace. */
static bool braces(reader *r, int64_t *min, int64_t *max) {
    const size_t from = r->at++;
    bool good = number(r, min);
    *max = *min;
    if (good && take(r, ",") && !number(r, max)) *max = -1;
    good = good && take(r, "}");
    if (!good) r->at = from;
    return good;
}

static fv_status repetition(reader *r, fv_expr **e) {
    int64_t min = 0, max = -1;
    while (r->at < r->n) {
        const size_t at = r->at;
        if (take(r, "*")) {
            min = 0, max = -1;
        } else if (take(r, "+")) {
            min = 1, max = -1;
        } else if (take(r, "?")) {
            min = 0, max = 1;
        } else if (r->s[r->at] != '{' || !braces(r, &min, &max)) {
            return FV_OK;
        }
        if ((*e)->kind == FV_EXPR_BEGIN || (*e)->kind == FV_EXPR_END)
            return FV_FAIL(FV_EINVAL, "nothing to repeat at byte %zu", at);
        if (next_is(r, "+"))
            return FV_FAIL(FV_EINVAL, "the possessive repetition at byte %zu is not supported",
                           r->at);
        take(r, "?"); /* lazy: the same texts */
        FV_TRY(fv_expr_repeat(r->c, *e, min, max, e));
    }
    return FV_OK;
}

static fv_status sequence(void *user, fv_exprs *list) {
    reader *r = user;
    fv_expr *e;
    while (r->at < r->n && r->s[r->at] != '|' && r->s[r->at] != ')') {
        FV_TRY(atom(r, &e));
        FV_TRY(repetition(r, &e));
        FV_TRY(fv_exprs_add(list, e));
    }
    return FV_OK;
}

static bool bar(void *r) { return take(r, "|"); }

static fv_status alternatives(reader *r, fv_expr **out) {
    return fv_expr_alternatives(r->c, r, sequence, bar, out);
}

fv_status fv_regex_parse(fv_compile *c, const char *text, size_t n, fv_expr **out) {
    reader r = {.c = c, .s = text, .n = n};
    FV_TRY(alternatives(&r, out));
    return r.at == n ? FV_OK : FV_FAIL(FV_EINVAL, "a parenthesis at byte %zu closes nothing", r.at);
}

fv_status fv_regex_read(fv_compile *c, const char *text, size_t n, bool search, fv_expr **out) {
    fv_expr *e;
    fv_status st = fv_regex_parse(c, text, n, &e);
    if (st == FV_OK) st = fv_regex_anchor(c, e, search, out);
    return st == FV_OK ? st : fv_fail_prefix(st, "pattern '%.*s'", (int)(n < 64 ? n : 64), text);
}
