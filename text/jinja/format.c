/* Python's two ways to format: '%s: %5.2f' % (a, b), which the filter `format` is too, and
 * '{}: {:5.2f}'.format(a, b). A field that would need memory without bound fails. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/internal.h"

enum { WIDTH_MAX = 1 << 16, PRECISION_MAX = 100 };

typedef struct spec {
    int32_t fill;     /* a character; 0: a blank */
    char align, sign; /* one of "<>^=", of "-+ "; 0: by default */
    char group, type; /* ',' or '_' between thousands; 0: none */
    bool alternate, zero;
    int64_t width, precision; /* precision -1: by default */
} spec;

/* Reads a format string, and its arguments: for each place the next one, or a named one. */
typedef struct reader {
    fv_jj_run *r;
    fv_jj_out *out;
    fv_jj_str s;
    size_t at;
    const fv_jj_args *args; /* of str.format */
    const fv_jj_value *of;  /* of %: a tuple, a dict or the only value */
    int32_t n_taken;
    bool numbered, counted; /* of str.format: {0}, {} */
} reader;

static fv_status fail(reader *in, const char *what) {
    return FV_JJ_FAIL(in->r, FV_EINVAL, "a format string %s", what);
}

static char peek(const reader *in) { return in->at < in->s.n ? in->s.s[in->at] : '\0'; }

static bool skip(reader *in, char c) {
    bool is = in->at < in->s.n && in->s.s[in->at] == c;
    in->at += is;
    return is;
}

static bool one_of(char c, const char *set) { return c && strchr(set, c); }

/* Reads digits; `otherwise` where there are none. */
static fv_status number(reader *in, int64_t most, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    for (bool first = true; peek(in) >= '0' && peek(in) <= '9'; first = false) {
        *out = (first ? 0 : *out * 10) + (in->s.s[in->at++] - '0');
        if (*out > most) return fail(in, "has a width or a precision that is too large");
    }
    return FV_OK;
}

/* ---- fields ---- */

static fv_status repeat(reader *in, int32_t cp, int64_t n) {
    FV_TRY(fv_jj_steps(in->r, n > 0 ? (size_t)n / 4 : 0));
    for (; n > 0; n--) FV_TRY(fv_jj_put_char(in->r, in->out, cp, false));
    return FV_OK;
}

/* Writes the field: sign, then text, padded to the width. */
static fv_status put_field(reader *in, const spec *f, const char *sign, fv_jj_str text,
                           char align) {
    int64_t n = fv_jj_chars(in->r, text) + (int64_t)strlen(sign);
    int64_t room = f->width > n ? f->width - n : 0, left = 0;
    int32_t fill = f->fill ? f->fill : ' ';
    if (f->align) align = f->align;
    if (align == '>') left = room;
    if (align == '^') left = room / 2;
    FV_TRY(repeat(in, fill, left));
    FV_TRY(fv_jj_put_text(in->r, in->out, sign));
    if (align == '=') FV_TRY(repeat(in, fill, room));
    FV_TRY(fv_jj_put(in->r, in->out, text.s, text.n, text.user));
    return align == '=' ? FV_OK : repeat(in, fill, room - left);
}

static fv_status put_string(reader *in, const spec *f, fv_jj_str s, char align) {
    if (f->precision >= 0) s = fv_jj_sub(s, 0, fv_jj_byte_of(in->r, s, f->precision));
    if (f->sign || f->group || f->alternate || f->align == '=')
        return fail(in, "has a sign, a group or '=' for a text");
    return put_field(in, f, "", s, align);
}

/* Writes digits [before the point] with the spec's groups; text has room for them. */
static void group(const char *digits, char by, char *text) {
    size_t n = strspn(digits, "0123456789");
    for (size_t i = 0; i < n; i++) {
        if (by && i && (n - i) % 3 == 0) *text++ = by;
        *text++ = digits[i];
    }
    strcpy(text, digits + n);
}

static fv_status put_number(reader *in, const spec *f, bool negative, const char *prefix,
                            const char *digits) {
    char text[1024], sign[8];
    spec with = *f;
    snprintf(sign, sizeof sign, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             prefix);
    group(digits, f->group, text);
    if (f->zero && !f->align) with.align = '=', with.fill = f->fill ? f->fill : '0';
    return put_field(in, &with, sign, (fv_jj_str){.s = text, .n = strlen(text)}, '>');
}

static fv_status put_whole(reader *in, const spec *f, int64_t i) {
    char digits[80], *at = digits + sizeof digits - 1;
    const unsigned base = f->type == 'x' || f->type == 'X' ? 16
                          : f->type == 'o'                 ? 8
                          : f->type == 'b'                 ? 2
                                                           : 10;
    const char *prefix = base == 10 || !f->alternate ? ""
                         : base == 8                 ? "0o"
                         : base == 2                 ? "0b"
                         : f->type == 'X'            ? "0X"
                                                     : "0x";
    uint64_t n = i < 0 ? (uint64_t)0 - (uint64_t)i : (uint64_t)i;
    *at = '\0';
    do {
        *--at = (f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[n % base];
        n /= base;
    } while (n);
    return put_number(in, f, i < 0, prefix, at);
}

static fv_status put_real(reader *in, const spec *f, double x) {
    char format[16], digits[512];
    bool percent = f->type == '%';
    FV_TRY(fv_jj_steps(in->r, FV_JJ_DIGITS));
    if (!isfinite(x)) {
        bool upper = one_of(f->type, "EFG");
        const char *text = isnan(x) ? upper ? "NAN" : "nan" : upper ? "INF" : "inf";
        return put_number(in, f, signbit(x) && !isnan(x), "", text);
    }
    if (!f->type && f->precision < 0) {
        fv_jj_float_repr(fabs(x), digits);
    } else {
        snprintf(format, sizeof format, "%%%s.*%c", f->alternate ? "#" : "",
                 percent   ? 'f'
                 : f->type ? f->type
                           : 'g');
        snprintf(digits, sizeof digits, format, f->precision < 0 ? 6 : (int)f->precision,
                 fabs(percent ? 100 * x : x));
    }
    if (percent) strcat(digits, "%");
    return put_number(in, f, signbit(x), "", digits);
}

static fv_status put_character(reader *in, const spec *f, int64_t cp, char align) {
    fv_jj_out one = {0};
    if (cp < 0 || cp > 0x10ffff) return fail(in, "has a character beyond Unicode");
    FV_TRY(fv_jj_put_char(in->r, &one, (int32_t)cp, false));
    return put_field(in, f, "", fv_jj_taken(&one).str, align);
}

/* ---- '%s' % ---- */

static fv_status next_value(reader *in, const fv_jj_value **out) {
    const fv_jj_value *of = in->of;
    const bool listed = of->kind == FV_JJ_TUPLE;
    if (in->n_taken >= (listed ? of->list->n : 1))
        return fail(in, "has more fields than there are values");
    *out = listed ? &of->list->v[in->n_taken] : of;
    in->n_taken++;
    return FV_OK;
}

static fv_status keyed_value(reader *in, const fv_jj_value **out) {
    size_t from = in->at, depth = 1;
    for (; in->at < in->s.n; in->at++) {
        depth += peek(in) == '(';
        if (peek(in) == ')' && --depth == 0) break;
    }
    if (in->at == in->s.n) return fail(in, "has a name without its ')'");
    if (in->of->kind != FV_JJ_DICT) return fail(in, "has names, so its value must be a dict");
    fv_jj_value key = fv_jj_of(fv_jj_sub(in->s, from, in->at++));
    *out = fv_jj_dict_find(in->r, in->of->dict, &key);
    return *out ? FV_OK : fail(in, "names a value that is not there");
}

/* Reads a width or a precision: digits, or * for the next value. */
static fv_status size(reader *in, int64_t most, int64_t otherwise, int64_t *out) {
    const fv_jj_value *v = NULL;
    if (!skip(in, '*')) return number(in, most, otherwise, out);
    FV_TRY(next_value(in, &v));
    FV_TRY(fv_jj_need_int(in->r, v, "a width", out));
    return *out >= -most && *out <= most ? FV_OK : fail(in, "has a width that is too large");
}

static fv_status put_percent(reader *in, spec *f, const fv_jj_value *v) {
    fv_jj_out text = {0};
    fv_jj_str s;
    const bool number = fv_jj_is_number(v), real = v->kind == FV_JJ_FLOAT;
    if (one_of(f->type, "sra")) {
        if (f->type != 's') FV_TRY(fv_jj_put_repr(in->r, &text, v));
        s = fv_jj_taken(&text).str;
        if (f->type == 's') FV_TRY(fv_jj_str_of(in->r, v, &s));
        f->sign = 0, f->alternate = false, f->fill = 0;
        return put_string(in, f, s, '>');
    }
    if (f->type == 'c' && v->kind == FV_JJ_STR && fv_jj_chars(in->r, v->str) == 1)
        return put_field(in, f, "", v->str, '>');
    if (!number || (real && one_of(f->type, "xXoc")))
        return FV_JJ_FAIL(in->r, FV_EINVAL, "%%%c formats a number, not '%s'", f->type,
                          fv_jj_type(v));
    if (f->type == 'c') return put_character(in, f, fv_jj_whole(v), '>');
    if (one_of(f->type, "eEfFgG")) return put_real(in, f, fv_jj_double(v));
    if (real && !(fabs(v->f) < 9.2e18)) return fail(in, "has a number beyond 64 bits");
    return put_whole(in, f, real ? (int64_t)v->f : fv_jj_whole(v));
}

static fv_status percent_field(reader *in) {
    const fv_jj_value *v = NULL;
    spec f = {.precision = -1};
    if (skip(in, '(')) FV_TRY(keyed_value(in, &v));
    for (; one_of(peek(in), "#0- +"); in->at++) {
        char c = peek(in);
        if (c == '#') f.alternate = true;
        if (c == '0') f.zero = true;
        if (c == '-') f.align = '<';
        if (c == '+' || (c == ' ' && !f.sign)) f.sign = c;
    }
    FV_TRY(size(in, WIDTH_MAX, 0, &f.width));
    if (f.width < 0) f.align = '<', f.width = -f.width;
    if (skip(in, '.')) FV_TRY(size(in, PRECISION_MAX, 0, &f.precision));
    while (one_of(peek(in), "hlL")) in->at++;
    f.type = peek(in);
    in->at++;
    if (f.type == '%') return fv_jj_put_text(in->r, in->out, "%");
    if (!one_of(f.type, "diouxXeEfFgGcrsa")) return fail(in, "has an unknown conversion");
    if (!v) FV_TRY(next_value(in, &v));
    return put_percent(in, &f, v);
}

/* Writes the text up to one of the characters `ends`, or to the end. */
static fv_status put_plain(reader *in, const char *ends) {
    size_t from = in->at;
    while (in->at < in->s.n && !one_of(peek(in), ends)) in->at++;
    fv_jj_str part = fv_jj_sub(in->s, from, in->at);
    return fv_jj_put(in->r, in->out, part.s, part.n, part.user);
}

fv_status fv_jj_percent(fv_jj_run *r, fv_jj_str s, const fv_jj_value *of, fv_jj_value *out) {
    fv_jj_out text = {0};
    reader in = {.r = r, .out = &text, .s = s, .of = of};
    FV_TRY(fv_jj_steps(r, fv_jj_reading(s.n)));
    for (;;) {
        FV_TRY(put_plain(&in, "%"));
        if (!skip(&in, '%')) break;
        FV_TRY(fv_jj_steps(r, 1));
        FV_TRY(percent_field(&in));
    }
    int32_t n = of->kind == FV_JJ_TUPLE ? of->list->n : 1;
    if (in.n_taken < n && of->kind != FV_JJ_DICT)
        return fail(&in, "has fewer fields than there are values");
    *out = fv_jj_taken(&text);
    return FV_OK;
}

/* ---- '{}'.format() ---- */

static bool spec_ends(const reader *in) { return in->at == in->s.n || peek(in) == '}'; }

static fv_status read_spec(reader *in, spec *f) {
    int32_t cp;
    *f = (spec){.precision = -1};
    if (spec_ends(in)) return FV_OK;
    size_t n = fv_jj_char(in->s.s + in->at, in->s.n - in->at, &cp);
    if (in->at + n < in->s.n && one_of(in->s.s[in->at + n], "<>^=")) {
        f->fill = cp;
        in->at += n;
    }
    if (one_of(peek(in), "<>^=")) f->align = in->s.s[in->at++];
    if (one_of(peek(in), "-+ ")) f->sign = in->s.s[in->at++];
    f->alternate = skip(in, '#');
    f->zero = skip(in, '0');
    FV_TRY(number(in, WIDTH_MAX, 0, &f->width));
    if (one_of(peek(in), ",_")) f->group = in->s.s[in->at++];
    if (skip(in, '.')) {
        FV_TRY(number(in, PRECISION_MAX, -1, &f->precision));
        if (f->precision < 0) return fail(in, "has a '.' without a precision");
    }
    if (!spec_ends(in)) f->type = in->s.s[in->at++];
    return spec_ends(in) ? FV_OK : fail(in, "has a specification that is not supported");
}

static fv_status put_braced(reader *in, const spec *f, const fv_jj_value *v) {
    fv_jj_str s;
    const bool real = v->kind == FV_JJ_FLOAT, bare = v->kind == FV_JJ_BOOL && !f->type;
    if (fv_jj_is_number(v) && !bare) {
        if (f->type == 'c') return put_character(in, f, fv_jj_whole(v), '<');
        if (one_of(f->type, "eEfFgG%") || (real && !f->type))
            return put_real(in, f, fv_jj_double(v));
        if (!real && (!f->type || one_of(f->type, "bdoxXn")) && f->precision < 0)
            return put_whole(in, f, fv_jj_whole(v));
    } else if (v->kind == FV_JJ_STR ? !f->type || f->type == 's'
                                    : !f->type && !f->width && !f->align) {
        FV_TRY(fv_jj_str_of(in->r, v, &s));
        spec with = *f;
        if (f->zero && !f->fill) with.fill = '0';
        return put_string(in, &with, s, '<');
    }
    return FV_JJ_FAIL(in->r, FV_EINVAL, "a format string has '%c' for a '%s'",
                      f->type ? f->type : '?', fv_jj_type(v));
}

static const fv_jj_value *named(const fv_jj_args *args, fv_jj_str name) {
    for (int32_t i = 0; i < args->n; i++)
        if (args->name[i] && fv_jj_str_is(name, args->name[i])) return &args->v[i];
    return NULL;
}

static const fv_jj_value *positional(const fv_jj_args *args, int64_t at) {
    for (int32_t i = 0; i < args->n; i++)
        if (!args->name[i] && at-- == 0) return &args->v[i];
    return NULL;
}

/* Finds the argument of a field and follows its attributes and items: "0", "name.a[b]", "". */
static fv_status field_value(reader *in, fv_jj_value *out) {
    size_t from = in->at;
    int64_t at;
    while (in->at < in->s.n && !one_of(peek(in), ".[!:}{")) in->at++;
    fv_jj_str name = fv_jj_sub(in->s, from, in->at);
    const bool digits = name.n > 0 && name.n < 6 && strspn(name.s, "0123456789") >= name.n;
    const fv_jj_value *found;
    if (name.n == 0 || digits) {
        reader number_of = *in;
        number_of.at = from;
        FV_TRY(number(&number_of, WIDTH_MAX, in->n_taken, &at));
        in->counted |= name.n == 0;
        in->numbered |= digits;
        if (in->counted && in->numbered) return fail(in, "mixes {} with {0}");
        in->n_taken += name.n == 0;
        found = positional(in->args, at);
    } else {
        found = named(in->args, name);
    }
    if (!found) return fail(in, "names a value that is not there");
    *out = *found;
    while (one_of(peek(in), ".[")) {
        bool item = in->s.s[in->at++] == '[';
        from = in->at;
        while (in->at < in->s.n && !one_of(peek(in), item ? "]" : ".[!:}")) in->at++;
        fv_jj_value key = fv_jj_of(fv_jj_sub(in->s, from, in->at));
        FV_TRY(fv_jj_steps(in->r, 1));
        FV_TRY(fv_jj_path(in->r, out, &key, NULL, out));
        if (item && !skip(in, ']')) return fail(in, "has a '[' without its ']'");
    }
    return fv_jj_fail_undefined(in->r, out);
}

static fv_status braced_field(reader *in) {
    fv_jj_value v;
    fv_jj_out text = {0};
    spec f;
    FV_TRY(field_value(in, &v));
    if (skip(in, '!')) {
        char how = peek(in);
        if (!one_of(how, "rsa")) return fail(in, "has an unknown conversion");
        in->at++;
        FV_TRY(how == 's' ? fv_jj_put_str(in->r, &text, &v) : fv_jj_put_repr(in->r, &text, &v));
        v = fv_jj_taken(&text);
    }
    f = (spec){.precision = -1};
    if (skip(in, ':')) FV_TRY(read_spec(in, &f));
    if (!skip(in, '}')) return fail(in, "has a '{' without its '}'");
    return put_braced(in, &f, &v);
}

fv_status fv_jj_format(fv_jj_run *r, fv_jj_str s, const fv_jj_args *args, fv_jj_value *out) {
    fv_jj_out text = {0};
    reader in = {.r = r, .out = &text, .s = s, .args = args};
    FV_TRY(fv_jj_steps(r, fv_jj_reading(s.n)));
    while (in.at < s.n) {
        FV_TRY(put_plain(&in, "{}"));
        if (in.at == s.n) break;
        FV_TRY(fv_jj_steps(r, 1));
        char c = s.s[in.at++];
        if (skip(&in, c)) {
            FV_TRY(fv_jj_put(r, &text, &s.s[in.at - 1], 1, s.user ? s.user + in.at - 1 : NULL));
            continue;
        }
        if (c == '}') return fail(&in, "has a '}' without its '{'");
        FV_TRY(braced_field(&in));
    }
    *out = fv_jj_taken(&text);
    return FV_OK;
}
