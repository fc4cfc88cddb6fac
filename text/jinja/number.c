/* Python's numbers in 64 bits; results that do not fit are errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

bool fv_jj_is_number(const fv_jj_value *v) {
    return v->kind == FV_JJ_INT || v->kind == FV_JJ_FLOAT || v->kind == FV_JJ_BOOL;
}

int64_t fv_jj_whole(const fv_jj_value *v) { return v->kind == FV_JJ_BOOL ? v->b : v->i; }

double fv_jj_double(const fv_jj_value *v) {
    return v->kind == FV_JJ_FLOAT ? v->f : (double)fv_jj_whole(v);
}

/* Prints the fewest digits that read back as the same number, with an exponent from 1e16 up and
 * below 1e-4. */
void fv_jj_float_repr(double f, char text[40]) {
    if (!isfinite(f)) {
        strcpy(text, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char e[40];
    int digits = 1;
    do {
        snprintf(e, sizeof e, "%.*e", digits - 1, f);
    } while (strtod(e, NULL) != f && digits++ < 17);
    int exponent = atoi(strchr(e, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = digits - 1 - exponent;
        snprintf(text, 40, "%.*f", decimals > 1 ? decimals : 1, f);
        return;
    }
    strcpy(text, e);
}

static fv_status too_large(fv_jj_run *r) {
    return FV_JJ_FAIL(r, FV_EINVAL, "a whole number %s", "does not fit 64 bits");
}

static fv_status no_operator(fv_jj_run *r, int32_t op, const fv_jj_value *a, const fv_jj_value *b) {
    char text[3] = {(char)op, (char)(op >> 8), '\0'};
    return FV_JJ_FAIL(r, FV_EINVAL, "'%s' %s '%s' has no meaning", fv_jj_type(a), text,
                      fv_jj_type(b));
}

static fv_status by_zero(fv_jj_run *r) {
    return FV_JJ_FAIL(r, FV_EINVAL, "division by %s", "zero");
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static fv_status power(fv_jj_run *r, int64_t base, int64_t exponent, fv_jj_value *out) {
    int64_t n = 1;
    if (exponent < 0) {
        if (base == 0) return by_zero(r);
        *out = fv_jj_float(pow((double)base, (double)exponent));
        return FV_OK;
    }
    for (bool more = exponent > 0; more; more = exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(n, base, &n)) return too_large(r);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(r);
    }
    *out = fv_jj_int(n);
    return FV_OK;
}

static fv_status whole(fv_jj_run *r, int32_t op, int64_t a, int64_t b, fv_jj_value *out) {
    int64_t n;
    bool over = false;
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &n); break;
    case '-': over = __builtin_sub_overflow(a, b, &n); break;
    case '*': over = __builtin_mul_overflow(a, b, &n); break;
    case FV_JJ_OP('*', '*'): return power(r, a, b, out);
    case '/':
        if (b == 0) return by_zero(r);
        *out = fv_jj_float((double)a / (double)b);
        return FV_OK;
    default:
        if (b == 0) return by_zero(r);
        if (b == -1) { /* INT64_MIN / -1 */
            over = op != '%' && __builtin_sub_overflow((int64_t)0, a, &n);
            if (op == '%') n = 0;
        } else {
            n = floor_div(a, b);
            if (op == '%') n = a - n * b;
        }
    }
    if (over) return too_large(r);
    *out = fv_jj_int(n);
    return FV_OK;
}

static fv_status real(fv_jj_run *r, int32_t op, double a, double b, fv_jj_value *out) {
    double f, rest;
    switch (op) {
    case '+': f = a + b; break;
    case '-': f = a - b; break;
    case '*': f = a * b; break;
    case FV_JJ_OP('*', '*'): f = pow(a, b); break;
    case '/':
        if (b == 0) return by_zero(r);
        f = a / b;
        break;
    default:
        if (b == 0) return by_zero(r);
        FV_TRY(fv_jj_steps(r, FV_JJ_DIGITS));
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
        f = op == '%' ? rest : floor((a - rest) / b + 0.5);
    }
    *out = fv_jj_float(f);
    return FV_OK;
}

static fv_status repeat(fv_jj_run *r, const fv_jj_value *v, int64_t times, fv_jj_value *out) {
    fv_jj_out text = {0};
    fv_jj_value made;
    if (v->kind == FV_JJ_STR) {
        for (int64_t i = 0; i < times && v->str.n; i++) {
            FV_TRY(fv_jj_steps(r, 1));
            FV_TRY(fv_jj_put(r, &text, v->str.s, v->str.n, v->str.user));
        }
        *out = fv_jj_taken(&text);
        return FV_OK;
    }
    FV_TRY(fv_jj_new_list(r, v->kind, &made)); /* out may be v */
    for (int64_t i = 0; i < times && v->list->n; i++)
        for (int32_t k = 0; k < v->list->n; k++) FV_TRY(fv_jj_push(r, made.list, v->list->v[k]));
    *out = made;
    return FV_OK;
}

static fv_status concatenate(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b,
                             fv_jj_value *out) {
    fv_jj_out text = {0};
    fv_jj_value made;
    if (a->kind == FV_JJ_STR) {
        const bool markup = a->str.markup || b->str.markup;
        fv_jj_value one = *a, two = *b;
        if (markup) FV_TRY(fv_jj_escape(r, a->str, &one));
        if (markup) FV_TRY(fv_jj_escape(r, b->str, &two));
        FV_TRY(fv_jj_put(r, &text, one.str.s, one.str.n, one.str.user));
        FV_TRY(fv_jj_put(r, &text, two.str.s, two.str.n, two.str.user));
        *out = fv_jj_taken(&text);
        out->str.markup = markup;
        return FV_OK;
    }
    FV_TRY(fv_jj_new_list(r, a->kind, &made)); /* out may be a or b */
    for (int32_t i = 0; i < a->list->n; i++) FV_TRY(fv_jj_push(r, made.list, a->list->v[i]));
    for (int32_t i = 0; i < b->list->n; i++) FV_TRY(fv_jj_push(r, made.list, b->list->v[i]));
    *out = made;
    return FV_OK;
}

static bool is_sequence(const fv_jj_value *v) {
    return v->kind == FV_JJ_STR || v->kind == FV_JJ_LIST || v->kind == FV_JJ_TUPLE;
}

static bool is_whole(const fv_jj_value *v) { return v->kind == FV_JJ_INT || v->kind == FV_JJ_BOOL; }

fv_status fv_jj_arithmetic(fv_jj_run *r, int32_t op, const fv_jj_value *a, const fv_jj_value *b,
                           fv_jj_value *out) {
    FV_TRY(fv_jj_fail_undefined(r, a));
    if (op == '%' && a->kind == FV_JJ_STR) return fv_jj_percent(r, a->str, b, out);
    FV_TRY(fv_jj_fail_undefined(r, b));
    if (is_whole(a) && is_whole(b)) return whole(r, op, fv_jj_whole(a), fv_jj_whole(b), out);
    if (fv_jj_is_number(a) && fv_jj_is_number(b))
        return real(r, op, fv_jj_double(a), fv_jj_double(b), out);
    if (op == '+' && is_sequence(a) && a->kind == b->kind) return concatenate(r, a, b, out);
    if (op == '*' && is_sequence(a) && is_whole(b)) return repeat(r, a, fv_jj_whole(b), out);
    if (op == '*' && is_sequence(b) && is_whole(a)) return repeat(r, b, fv_jj_whole(a), out);
    return no_operator(r, op, a, b);
}
