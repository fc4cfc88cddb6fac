/* Python's str and repr of values. */
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/internal.h"

static fv_status put_repr(fv_jj_run *r, fv_jj_out *out, const fv_jj_value *v, int depth);

static bool printable(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return cp == ' ' ||
           (c != UTF8PROC_CATEGORY_CN && c != UTF8PROC_CATEGORY_CC && c != UTF8PROC_CATEGORY_CF &&
            c != UTF8PROC_CATEGORY_CS && c != UTF8PROC_CATEGORY_CO && c != UTF8PROC_CATEGORY_ZS &&
            c != UTF8PROC_CATEGORY_ZL && c != UTF8PROC_CATEGORY_ZP);
}

static fv_status put_quoted(fv_jj_run *r, fv_jj_out *out, fv_jj_str s) {
    char quote = s.n && memchr(s.s, '\'', s.n) && !memchr(s.s, '"', s.n) ? '"' : '\'';
    char text[16];
    int32_t cp;
    FV_TRY(fv_jj_steps(r, fv_jj_writing(s.n)));
    FV_TRY(fv_jj_put(r, out, &quote, 1, NULL));
    for (size_t at = 0, n; at < s.n; at += n) {
        n = fv_jj_char(s.s + at, s.n - at, &cp);
        const char *escaped = cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : cp == '\t' ? "\\t" : NULL;
        if (cp == quote || cp == '\\')
            snprintf(text, sizeof text, "\\%c", cp);
        else if (escaped)
            strcpy(text, escaped);
        else if (!printable(cp))
            snprintf(text, sizeof text,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
        else {
            FV_TRY(fv_jj_put(r, out, s.s + at, n, s.user ? s.user + at : NULL));
            continue;
        }
        FV_TRY(fv_jj_put_text(r, out, text));
    }
    return fv_jj_put(r, out, &quote, 1, NULL);
}

static fv_status put_listing(fv_jj_run *r, fv_jj_out *out, const fv_jj_value *v, int depth) {
    bool is_tuple = v->kind == FV_JJ_TUPLE;
    FV_TRY(fv_jj_put_text(r, out, is_tuple ? "(" : "["));
    for (int32_t i = 0; i < v->list->n; i++) {
        if (i) FV_TRY(fv_jj_put_text(r, out, ", "));
        FV_TRY(put_repr(r, out, &v->list->v[i], depth));
    }
    return fv_jj_put_text(r, out, !is_tuple ? "]" : v->list->n == 1 ? ",)" : ")");
}

static fv_status put_dict(fv_jj_run *r, fv_jj_out *out, const fv_jj_dict *d, int depth) {
    FV_TRY(fv_jj_put_text(r, out, "{"));
    for (int32_t i = 0; i < d->keys.n; i++) {
        if (i) FV_TRY(fv_jj_put_text(r, out, ", "));
        FV_TRY(put_repr(r, out, &d->keys.v[i], depth));
        FV_TRY(fv_jj_put_text(r, out, ": "));
        FV_TRY(put_repr(r, out, &d->values.v[i], depth));
    }
    return fv_jj_put_text(r, out, "}");
}

static fv_status put_repr(fv_jj_run *r, fv_jj_out *out, const fv_jj_value *v, int depth) {
    char text[64];
    if (depth > FV_JINJA_DEPTH)
        return FV_JJ_FAIL(r, FV_EINVAL, "a value nests deeper than %d levels", FV_JINJA_DEPTH);
    FV_TRY(fv_jj_steps(r, 1));
    switch (v->kind) {
    case FV_JJ_UNDEFINED: return fv_jj_put_text(r, out, "Undefined");
    case FV_JJ_NONE: return fv_jj_put_text(r, out, "None");
    case FV_JJ_BOOL: return fv_jj_put_text(r, out, v->b ? "True" : "False");
    case FV_JJ_INT: snprintf(text, sizeof text, "%lld", (long long)v->i); break;
    case FV_JJ_FLOAT:
        FV_TRY(fv_jj_steps(r, FV_JJ_DIGITS));
        fv_jj_float_repr(v->f, text);
        break;
    case FV_JJ_STR: return put_quoted(r, out, v->str);
    case FV_JJ_LIST:
    case FV_JJ_TUPLE: return put_listing(r, out, v, depth + 1);
    case FV_JJ_DICT: return put_dict(r, out, v->dict, depth + 1);
    default: snprintf(text, sizeof text, "<%s object>", fv_jj_type(v));
    }
    return fv_jj_put_text(r, out, text);
}

fv_status fv_jj_put_repr(fv_jj_run *r, fv_jj_out *out, const fv_jj_value *v) {
    return put_repr(r, out, v, 0);
}

fv_status fv_jj_put_str(fv_jj_run *r, fv_jj_out *out, const fv_jj_value *v) {
    if (v->kind == FV_JJ_UNDEFINED) return FV_OK;
    if (v->kind == FV_JJ_STR) return fv_jj_put(r, out, v->str.s, v->str.n, v->str.user);
    return fv_jj_put_repr(r, out, v);
}

fv_status fv_jj_str_of(fv_jj_run *r, const fv_jj_value *v, fv_jj_str *out) {
    fv_jj_out text = {0};
    if (v->kind == FV_JJ_STR) {
        *out = v->str;
        return FV_OK;
    }
    FV_TRY(fv_jj_put_str(r, &text, v));
    *out = fv_jj_taken(&text).str;
    return FV_OK;
}
