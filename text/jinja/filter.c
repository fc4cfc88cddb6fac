/* Filters of one value. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

#define FILTER(name)                                                                               \
    static fv_status name(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,           \
                          fv_jj_value *out)

/* str() of an argument; `otherwise` where it is not given. */
static fv_status text_arg(fv_jj_run *r, const fv_jj_value *given, const char *otherwise,
                          fv_jj_str *out) {
    *out = fv_jj_text(otherwise).str;
    return given ? fv_jj_str_of(r, given, out) : FV_OK;
}

static fv_status int_arg(fv_jj_run *r, const fv_jj_value *given, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    return given && given->kind != FV_JJ_NONE ? fv_jj_need_int(r, given, "an argument", out)
                                              : FV_OK;
}

static bool flag_arg(const fv_jj_value *given) { return given && fv_jj_truth(given); }

FILTER(trim) {
    fv_jj_str s, set;
    FV_TRY(fv_jj_str_of(r, self, &s));
    bool given = args->bound[0] && args->bound[0]->kind != FV_JJ_NONE;
    if (given) {
        FV_TRY(fv_jj_need_str(r, args->bound[0], "characters to trim", &set));
        FV_TRY(fv_jj_steps(r, fv_jj_reading(s.n * set.n))); /* each is looked for in set */
    }
    *out = fv_jj_of(fv_jj_strip(s, given ? &set : NULL, true, true));
    return FV_OK;
}

static fv_status recase(fv_jj_run *r, const fv_jj_value *self, fv_jj_case to, fv_jj_value *out) {
    fv_jj_str s;
    FV_TRY(fv_jj_str_of(r, self, &s));
    return fv_jj_recase(r, s, to, out);
}

FILTER(upper) { return (void)args, recase(r, self, FV_JJ_UPPER, out); }
FILTER(lower) { return (void)args, recase(r, self, FV_JJ_LOWER, out); }
FILTER(capitalize) { return (void)args, recase(r, self, FV_JJ_CAPITAL, out); }
FILTER(title) { return (void)args, recase(r, self, FV_JJ_WORDS, out); }

FILTER(string) {
    (void)args;
    *out = (fv_jj_value){.kind = FV_JJ_STR};
    return fv_jj_str_of(r, self, &out->str);
}

FILTER(safe) {
    FV_TRY(string(r, self, args, out));
    out->str.markup = true;
    return FV_OK;
}

FILTER(escape) {
    fv_jj_str s;
    (void)args;
    FV_TRY(fv_jj_str_of(r, self, &s));
    return fv_jj_escape(r, s, out);
}

FILTER(replace) {
    fv_jj_str s, was, is;
    int64_t most;
    FV_TRY(fv_jj_str_of(r, self, &s));
    FV_TRY(text_arg(r, args->bound[0], "", &was));
    FV_TRY(text_arg(r, args->bound[1], "", &is));
    FV_TRY(int_arg(r, args->bound[2], -1, &most));
    return fv_jj_replace(r, s, was, is, most, out);
}

FILTER(indent) {
    fv_jj_value space = fv_jj_text(" "), width = fv_jj_int(4), made;
    fv_jj_list lines;
    fv_jj_str s;
    fv_jj_out text = {0};
    bool first = flag_arg(args->bound[1]), blank = flag_arg(args->bound[2]);
    if (args->bound[0]) width = *args->bound[0];
    made = width;
    if (width.kind != FV_JJ_STR) FV_TRY(fv_jj_arithmetic(r, '*', &space, &width, &made));
    FV_TRY(fv_jj_str_of(r, self, &s));
    FV_TRY(fv_jj_split_lines(r, s, false, &lines));
    bool open = s.n == 0 || s.s[s.n - 1] == '\n'; /* an empty last line counts */
    if (open) FV_TRY(fv_jj_push(r, &lines, fv_jj_text("")));
    for (int32_t i = 0; i < lines.n; i++) {
        if (i) FV_TRY(fv_jj_put_text(r, &text, "\n"));
        if (i == 0 ? first : blank || lines.v[i].str.n) FV_TRY(fv_jj_put_str(r, &text, &made));
        FV_TRY(fv_jj_put_str(r, &text, &lines.v[i]));
    }
    *out = fv_jj_taken(&text);
    return FV_OK;
}

/* `s | format(a, b)` is s % (a, b); with names, s % {names}. */
FILTER(format) {
    fv_jj_value of, key;
    fv_jj_str s;
    bool by_name = args->n > 0 && args->name[0];
    FV_TRY(fv_jj_str_of(r, self, &s));
    FV_TRY(by_name ? fv_jj_new_dict(r, FV_JJ_DICT, &of) : fv_jj_new_list(r, FV_JJ_TUPLE, &of));
    for (int32_t i = 0; i < args->n; i++) {
        if (by_name != (args->name[i] != NULL))
            return FV_JJ_FAIL(r, FV_EINVAL, "format takes values or names, %s", "not both");
        if (by_name) key = fv_jj_text(args->name[i]);
        FV_TRY(by_name ? fv_jj_dict_put(r, of.dict, &key, args->v[i])
                       : fv_jj_push(r, of.list, args->v[i]));
    }
    return fv_jj_percent(r, s, &of, out);
}

FILTER(default_to) {
    (void)r;
    bool gone = self->kind == FV_JJ_UNDEFINED || (flag_arg(args->bound[1]) && !fv_jj_truth(self));
    *out = !gone ? *self : args->bound[0] ? *args->bound[0] : fv_jj_text("");
    return FV_OK;
}

FILTER(length) {
    (void)args;
    switch (self->kind) {
    case FV_JJ_UNDEFINED: *out = fv_jj_int(0); return FV_OK;
    case FV_JJ_STR: *out = fv_jj_int(fv_jj_chars(r, self->str)); return FV_OK;
    case FV_JJ_LIST:
    case FV_JJ_TUPLE: *out = fv_jj_int(self->list->n); return FV_OK;
    case FV_JJ_DICT: *out = fv_jj_int(self->dict->keys.n); return FV_OK;
    case FV_JJ_LOOP: *out = fv_jj_int(self->loop->items.n); return FV_OK;
    default: return FV_JJ_FAIL(r, FV_EINVAL, "a '%s' has no length", fv_jj_type(self));
    }
}

/* ---- numbers ---- */

/* Reads a text as a number; underscores between digits are allowed. */
static bool read_number(fv_jj_str s, bool whole, int base, fv_jj_value *out) {
    char text[64], *end;
    size_t n = 0;
    s = fv_jj_strip(s, NULL, true, true);
    for (size_t i = 0; i < s.n; i++) {
        if (n + 1 >= sizeof text ||
            (whole ? !strchr("+-_0123456789abcdefABCDEFxXoO", s.s[i]) : s.s[i] == 'x'))
            return false;
        if (s.s[i] != '_') text[n++] = s.s[i];
    }
    text[n] = '\0';
    errno = 0;
    *out = whole ? fv_jj_int(strtoll(text, &end, base)) : fv_jj_float(strtod(text, &end));
    return n > 0 && !*end && !(whole && errno);
}

static bool truncated(double f, fv_jj_value *out) {
    if (!(fabs(f) < 9.2e18)) return false;
    *out = fv_jj_int((int64_t)f);
    return true;
}

FILTER(to_int) {
    int64_t base;
    fv_jj_value v = {.kind = FV_JJ_NONE};
    FV_TRY(fv_jj_fail_undefined(r, self));
    FV_TRY(int_arg(r, args->bound[1], 10, &base));
    *out = args->bound[0] ? *args->bound[0] : fv_jj_int(0);
    if (fv_jj_is_number(self) && self->kind != FV_JJ_FLOAT) *out = fv_jj_int(fv_jj_whole(self));
    if (self->kind == FV_JJ_FLOAT) truncated(self->f, out);
    if (self->kind == FV_JJ_STR) {
        if (read_number(self->str, true, (int)base, &v))
            *out = v;
        else if (read_number(self->str, false, 10, &v))
            truncated(v.f, out);
    }
    return FV_OK;
}

FILTER(to_float) {
    fv_jj_value v;
    FV_TRY(fv_jj_fail_undefined(r, self));
    *out = args->bound[0] ? *args->bound[0] : fv_jj_float(0);
    if (fv_jj_is_number(self)) *out = fv_jj_float(fv_jj_double(self));
    if (self->kind == FV_JJ_STR && read_number(self->str, false, 10, &v)) *out = v;
    return FV_OK;
}

FILTER(absolute) {
    fv_jj_value zero = fv_jj_int(0);
    (void)args;
    if (!fv_jj_is_number(self))
        return FV_JJ_FAIL(r, FV_EINVAL, "abs needs a number, not '%s'", fv_jj_type(self));
    return fv_jj_arithmetic(r, fv_jj_double(self) < 0 ? '-' : '+', &zero, self, out);
}

/* "common" rounds the number's exact value to the nearest, half to even, as Python does; "ceil" and
 * "floor" as named. */
FILTER(round_to) {
    int64_t digits;
    fv_jj_str method;
    char text[400];
    FV_TRY(fv_jj_steps(r, FV_JJ_DIGITS));
    FV_TRY(int_arg(r, args->bound[0], 0, &digits));
    FV_TRY(text_arg(r, args->bound[1], "common", &method));
    if (!fv_jj_is_number(self) || digits < 0 || digits > 15)
        return FV_JJ_FAIL(r, FV_EINVAL, "round needs a number and 0..15 digits, not '%s'",
                          fv_jj_type(self));
    double f = fv_jj_double(self), scale = pow(10, (double)digits);
    if (fv_jj_str_is(method, "ceil")) {
        f = ceil(f * scale) / scale;
    } else if (fv_jj_str_is(method, "floor")) {
        f = floor(f * scale) / scale;
    } else if (self->kind != FV_JJ_FLOAT) {
        *out = fv_jj_int(fv_jj_whole(self));
        return FV_OK;
    } else {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        f = strtod(text, NULL);
    }
    *out = fv_jj_float(f);
    return FV_OK;
}

const fv_jj_row fv_jj_filters[] = {
    {"trim", "chars", trim},
    {"upper", "", upper},
    {"lower", "", lower},
    {"capitalize", "", capitalize},
    {"title", "", title},
    {"string", "", string},
    {"safe", "", safe},
    {"escape", "", escape},
    {"e", "", escape},
    {"replace", "old new count", replace},
    {"indent", "width first blank", indent},
    {"format", NULL, format},
    {"default", "default_value boolean", default_to},
    {"d", "default_value boolean", default_to},
    {"length", "", length},
    {"count", "", length},
    {"int", "default base", to_int},
    {"float", "default", to_float},
    {"abs", "", absolute},
    {"round", "precision method", round_to},
    {"tojson", "ensure_ascii indent separators sort_keys", fv_jj_to_json},
    {0}};
