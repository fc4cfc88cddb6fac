/* Strings: lengths alone are counted while the answer is read; patterns and formats with lengths, or several of
 * them, become one automaton. Beside a pattern a large maxLength is lowered where the automaton would get too large:
 * the answers are then shorter than they might be, and valid. */
#include <string.h>

#include "grammar/schema_internal.h"

enum { PATTERNS_MAX = 32, STATES_WANTED = 8000 };

typedef struct patterns {
    fv_expr *e[PATTERNS_MAX];
    int n;
} patterns;

static fv_status add(patterns *p, fv_schema *x, const char *regex, bool search) {
    if (p->n == PATTERNS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d patterns for one string", PATTERNS_MAX);
    return fv_regex_read(x->c, regex, strlen(regex), search, &p->e[p->n++]);
}

static fv_status gather(fv_schema *x, const fv_parts *flat, patterns *p) {
    p->n = 0;
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *s = flat->part[i].schema, *pattern = json_object_get(s, "pattern");
        const char *format = json_string_value(json_object_get(s, "format"));
        if (pattern && !json_is_string(pattern))
            return FV_FAIL(FV_EINVAL, "pattern must be a text");
        if (pattern) FV_TRY(add(p, x, json_string_value(pattern), true));
        const char *regex = format ? fv_format_regex(format) : NULL;
        if (regex) FV_TRY(add(p, x, regex, false));
    }
    return FV_OK;
}

static fv_status lengths(const fv_parts *flat, int64_t *min, int64_t *max) {
    FV_TRY(fv_schema_count(flat, "minLength", false, min));
    FV_TRY(fv_schema_count(flat, "maxLength", true, max));
    if (*min < 0) *min = 0;
    return FV_OK;
}

static fv_status with_lengths(fv_compile *c, const fv_dfa *d, int64_t min, int64_t max,
                              const fv_dfa **out) {
    int64_t shortest, longest;
    const fv_dfa *counted;
    FV_TRY(fv_dfa_word_lengths(c, d, &shortest, &longest));
    *out = d;
    if (shortest < 0) return FV_OK; /* it accepts nothing */
    if (min <= shortest && (max < 0 || max >= longest)) return FV_OK;
    if (max >= longest) max = -1;
    int64_t most = max;
    const int64_t least = min > shortest ? min : shortest, room = least + STATES_WANTED / d->n + 8;
    if (max > room) most = room;
    FV_TRY(fv_dfa_lengths(c, min, most, &counted));
    FV_TRY(fv_dfa_join(c, d, counted, true, out));
    if (most == max || !fv_dfa_empty(*out)) return FV_OK;
    FV_TRY(fv_dfa_lengths(c, min, max, &counted));
    return fv_dfa_join(c, d, counted, true, out);
}

static fv_status join_all(fv_schema *x, const patterns *p, int64_t min, int64_t max,
                          const fv_dfa **out) {
    const fv_dfa *all = NULL, *one;
    for (int i = 0; i < p->n; i++) {
        FV_TRY(fv_dfa_make(x->c, p->e[i], &one));
        if (all)
            FV_TRY(fv_dfa_join(x->c, all, one, true, &all));
        else
            all = one;
    }
    if (min <= 0 && max < 0) {
        *out = all;
        return FV_OK;
    }
    if (!all) return fv_dfa_lengths(x->c, min, max, out);
    return with_lengths(x->c, all, min, max, out);
}

fv_status fv_schema_string_dfa(fv_schema *x, const fv_parts *flat, const fv_dfa **out) {
    patterns p;
    int64_t min, max;
    FV_TRY(gather(x, flat, &p));
    FV_TRY(lengths(flat, &min, &max));
    return join_all(x, &p, min, max, out);
}

fv_status fv_schema_string(fv_schema *x, const fv_parts *flat, fv_expr **out) {
    fv_expr *quote, *e;
    patterns p;
    int64_t min, max;
    const fv_dfa *dfa;
    FV_TRY(gather(x, flat, &p));
    FV_TRY(lengths(flat, &min, &max));
    if (max >= 0 && min > max) return fv_expr_set(x->c, NULL, 0, out);
    if (p.n == 0) {
        FV_TRY(fv_expr_text(x->c, "\"", 1, &quote));
        FV_TRY(fv_expr_list(x->c, FV_EXPR_CHAR, NULL, 0, &e));
        FV_TRY(fv_expr_repeat(x->c, e, min, max, &e));
        return fv_expr_seq(x->c, out, quote, e, quote, NULL);
    }
    if (p.n == 1 && min == 0 && max < 0) return fv_expr_json(x->c, p.e[0], out);
    FV_TRY(join_all(x, &p, min, max, &dfa));
    FV_TRY(fv_expr_of_dfa(x->c, dfa, &e));
    return fv_expr_json(x->c, e, out);
}
