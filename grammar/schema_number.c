/* Numbers. Limits become automata over decimal digits: a number in plain notation is compared with a limit digit by
 * digit, as texts of equal length are. With limits there are no exponents, and so few digits after the point that a
 * reader's rounding to a double cannot pass a limit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

enum { DIGITS_MAX = 340, MULTIPLE_MAX = 2000, WHOLE_DIGITS = 18 };

#define INTEGER "-?(0|[1-9][0-9]{0,17})"
#define NUMBER "-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?"

typedef struct limit {
    bool given, strict, negative;
    double value;
    char whole[DIGITS_MAX],
        part[DIGITS_MAX]; /* digits before the point, and after it without zeros at the end */
} limit;

typedef struct limits {
    limit low, high;
    int64_t multiple; /* 0: any */
} limits;

/* ---- reading --------------------------------------------------------------------------------- */

static fv_status set_limit(limit *l, const json_t *v, bool strict, bool low) {
    char text[2 * DIGITS_MAX];
    const double d = json_number_value(v);
    if (!json_is_number(v) || !isfinite(d))
        return FV_FAIL(FV_EINVAL, "a limit of numbers must be a number");
    if (l->given && (low ? d < l->value : d > l->value)) return FV_OK;
    if (l->given && d == l->value && !strict) return FV_OK;
    if (json_is_integer(v)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    } else {
        int digits = 0;
        do snprintf(text, sizeof text, "%.*f", digits, d);
        while (strtod(text, NULL) != d && ++digits < 330);
    }
    char *s = text + (text[0] == '-'), *point = strchr(s, '.');
    *l = (limit){.given = true, .strict = strict, .negative = text[0] == '-', .value = d};
    if (point) *point = '\0';
    snprintf(l->whole, sizeof l->whole, "%s", s);
    snprintf(l->part, sizeof l->part, "%s", point ? point + 1 : "");
    for (size_t n = strlen(l->part); n > 0 && l->part[n - 1] == '0'; n--) l->part[n - 1] = '\0';
    return FV_OK;
}

static fv_status one_schema(limits *l, const json_t *s) {
    const json_t *min = json_object_get(s, "minimum"), *max = json_object_get(s, "maximum"),
                 *above = json_object_get(s, "exclusiveMinimum"),
                 *below = json_object_get(s, "exclusiveMaximum"),
                 *of = json_object_get(s, "multipleOf");
    if (min)
        FV_TRY(set_limit(&l->low, min, json_is_true(above), true)); /* draft 4: true or false */
    if (max) FV_TRY(set_limit(&l->high, max, json_is_true(below), false));
    if (above && !json_is_boolean(above)) FV_TRY(set_limit(&l->low, above, true, true));
    if (below && !json_is_boolean(below)) FV_TRY(set_limit(&l->high, below, true, false));
    if (!of) return FV_OK;
    const double m = json_number_value(of);
    if (!json_is_number(of) || m < 1 || m > MULTIPLE_MAX || m != floor(m))
        return FV_FAIL(FV_EINVAL, "multipleOf is supported only for whole numbers from 1 to %d",
                       MULTIPLE_MAX);
    int64_t a = (int64_t)m, b = l->multiple ? l->multiple : 1, x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    l->multiple = a / x * b;
    return l->multiple <= MULTIPLE_MAX
               ? FV_OK
               : FV_FAIL(FV_EINVAL, "multipleOf: together more than %d", MULTIPLE_MAX);
}

static fv_status read_limits(const fv_parts *flat, limits *l) {
    *l = (limits){0};
    for (size_t i = 0; i < flat->n; i++) FV_TRY(one_schema(l, flat->part[i].schema));
    return FV_OK;
}

fv_status fv_schema_number_fits(const fv_parts *flat, const json_t *value, bool *fits) {
    const double d = json_number_value(value);
    limits l;
    FV_TRY(read_limits(flat, &l));
    *fits = !(l.low.given && (d < l.low.value || (l.low.strict && d == l.low.value))) &&
            !(l.high.given && (d > l.high.value || (l.high.strict && d == l.high.value))) &&
            !(l.multiple && fmod(d, (double)l.multiple) != 0);
    return FV_OK;
}

/* ---- comparing, as patterns ------------------------------------------------------------------- */

typedef struct writer {
    char *s; /* malloc */
    size_t n, cap;
    fv_status st;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *fmt, ...);

#include <stdarg.h>

static void put(writer *w, const char *fmt, ...) {
    va_list args;
    if (w->st != FV_OK) return;
    w->st = fv_grow(&w->s, &w->cap, w->n + 2 * DIGITS_MAX, 1);
    if (w->st != FV_OK) return;
    va_start(args, fmt);
    w->n += (size_t)vsnprintf(w->s + w->n, 2 * DIGITS_MAX, fmt, args);
    va_end(args);
}

#define FRACTION "(\\.[0-9]+)?"

/* Digits that differ first at place i of `digits`: below or above. `any`: what may follow each further digit. */
static void differing(writer *w, const char *before, const char *digits, bool above, bool leading,
                      const char *tail, bool same_length) {
    const int n = (int)strlen(digits);
    for (int i = 0; i < n; i++) {
        const char first = (char)(above ? digits[i] + 1 : leading && i == 0 && n > 1 ? '1' : '0');
        const char last = (char)(above ? '9' : digits[i] - 1);
        if (first > last) continue;
        put(w, "|%s%.*s[%c-%c]", before, i, digits, first, last);
        if (same_length)
            put(w, "[0-9]{%d}%s", n - i - 1, tail);
        else
            put(w, "[0-9]*%s", tail);
    }
}

/* Numbers >= 0 that are at most the limit. */
static void at_most(writer *w, const limit *l) {
    const int n = (int)strlen(l->whole), n_part = (int)strlen(l->part);
    char point[DIGITS_MAX + 4];
    snprintf(point, sizeof point, "%s\\.", l->whole);
    put(w, "[^\\s\\S]"); /* nothing; alternatives follow */
    if (n > 1) put(w, "|0" FRACTION "|[1-9][0-9]{0,%d}" FRACTION, n - 2);
    differing(w, "", l->whole, false, true, FRACTION, true);
    if (n_part || !l->strict) put(w, "|%s(\\.0+)?", l->whole);
    differing(w, point, l->part, false, false, "", false);
    for (int i = 1; i < n_part; i++) put(w, "|%s%.*s", point, i, l->part);
    if (n_part && !l->strict) put(w, "|%s%s0*", point, l->part);
}

/* Numbers >= 0 that are at least the limit. */
static void at_least(writer *w, const limit *l) {
    const int n = (int)strlen(l->whole), n_part = (int)strlen(l->part);
    char point[DIGITS_MAX + 4];
    snprintf(point, sizeof point, "%s\\.", l->whole);
    put(w, "[1-9][0-9]{%d,}" FRACTION, n);
    differing(w, "", l->whole, true, true, FRACTION, true);
    if (!n_part && !l->strict) put(w, "|%s" FRACTION, l->whole);
    if (!n_part && l->strict) put(w, "|%s0*[1-9][0-9]*", point);
    differing(w, point, l->part, true, false, "", false);
    if (n_part && !l->strict) put(w, "|%s%s[0-9]*", point, l->part);
    if (n_part && l->strict) put(w, "|%s%s0*[1-9][0-9]*", point, l->part);
}

static fv_status dfa_of(fv_schema *x, writer *w, const fv_dfa **out) {
    fv_expr *e;
    fv_status st = w->st;
    if (st == FV_OK) st = fv_regex_read(x->c, w->s, w->n, false, &e);
    if (st == FV_OK) st = fv_dfa_make(x->c, e, out);
    free(w->s);
    return st;
}

static fv_status narrow(fv_schema *x, void (*write)(writer *, const limit *), const limit *l,
                        const fv_dfa **d) {
    const fv_dfa *one;
    writer w = {0};
    write(&w, l);
    FV_TRY(dfa_of(x, &w, &one));
    return fv_dfa_join(x->c, *d, one, true, d);
}

/* How many digits may follow the point: all of the limits' own, and as many as a double keeps apart. */
static int fraction_digits(const limits *l) {
    size_t whole = strlen(l->low.whole), part = strlen(l->low.part);
    if (strlen(l->high.whole) > whole) whole = strlen(l->high.whole);
    if (strlen(l->high.part) > part) part = strlen(l->high.part);
    int room = 14 - (int)whole;
    if (room > 8) room = 8;
    return room > (int)part ? room : (int)part;
}

/* The numbers of one sign whose amounts are between two limits. */
static fv_status amounts(fv_schema *x, const limits *l, const limit *least, const limit *most,
                         bool reals, bool negative, fv_expr **out) {
    const fv_dfa *d;
    fv_expr *minus, *e;
    writer w = {0};
    size_t whole = WHOLE_DIGITS;
    if (strlen(least->whole) > whole) whole = strlen(least->whole);
    if (strlen(most->whole) > whole) whole = strlen(most->whole);
    const int part = reals && !l->multiple ? fraction_digits(l) : 0;
    put(&w, "(0|[1-9][0-9]{0,%zu})", whole - 1);
    if (part > 0) put(&w, "(\\.[0-9]{1,%d})?", part);
    FV_TRY(dfa_of(x, &w, &d));
    if (least->given) FV_TRY(narrow(x, at_least, least, &d));
    if (most->given) FV_TRY(narrow(x, at_most, most, &d));
    if (l->multiple > 1) {
        const fv_dfa *of;
        FV_TRY(fv_dfa_multiples(x->c, (int32_t)l->multiple, &of));
        FV_TRY(fv_dfa_join(x->c, d, of, true, &d));
    }
    FV_TRY(fv_expr_of_dfa(x->c, d, &e));
    FV_TRY(fv_expr_text(x->c, negative ? "-" : "", negative, &minus));
    return fv_expr_seq(x->c, out, minus, e, NULL);
}

static fv_status limited(fv_schema *x, const limits *l, bool reals, fv_expr **out) {
    const limit zero = {.given = true, .strict = true, .whole = "0"}, none = {0};
    fv_expr *both[2];
    size_t n = 0;
    if (!l->high.given || !l->high.negative) {
        const bool from_zero = !l->low.given || l->low.negative;
        FV_TRY(amounts(x, l, from_zero ? &none : &l->low, &l->high, reals, false, &both[n++]));
    }
    if (!l->low.given || l->low.negative) {
        limit least = l->high.given && l->high.negative ? l->high : zero, most = l->low;
        least.negative = most.negative = false;
        FV_TRY(amounts(x, l, &least, &most, reals, true, &both[n++]));
    }
    return fv_expr_list(x->c, FV_EXPR_ALT, both, n, out);
}

fv_status fv_schema_number(fv_schema *x, const fv_parts *flat, unsigned types, fv_expr **out) {
    const bool reals = types & FV_TYPE_REAL;
    limits l;
    FV_TRY(read_limits(flat, &l));
    if (l.low.given || l.high.given || l.multiple > 1) return limited(x, &l, reals, out);
    return reals ? fv_regex_parse(x->c, NUMBER, sizeof NUMBER - 1, out)
                 : fv_regex_parse(x->c, INTEGER, sizeof INTEGER - 1, out);
}
