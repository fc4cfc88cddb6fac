/* tojson as in transformers: Python's json.dumps with ensure_ascii off by default.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

typedef struct writer {
    fv_jj_run *r;
    fv_jj_out *out;
    fv_jj_str item, key, indent; /* separators; indentation of a level */
    bool ascii, lines, sorted;
} writer;

static fv_status put(writer *w, const fv_jj_value *v, int depth);

static fv_status put_text(writer *w, const char *s) { return fv_jj_put_text(w->r, w->out, s); }
static fv_status put_str(writer *w, fv_jj_str s) {
    return fv_jj_put(w->r, w->out, s.s, s.n, s.user);
}

static fv_status put_string(writer *w, fv_jj_str s) {
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    char text[32];
    int32_t cp;
    FV_TRY(fv_jj_steps(w->r, fv_jj_writing(s.n)));
    FV_TRY(put_text(w, "\""));
    for (size_t at = 0, n; at < s.n; at += n) {
        n = fv_jj_char(s.s + at, s.n - at, &cp);
        const char *known = cp && cp < 128 ? strchr(plain, cp) : NULL;
        if (known) {
            snprintf(text, sizeof text, "\\%c", letters[known - plain]);
        } else if (cp < 32 || (w->ascii && cp >= 0x7f && cp < 0x10000 && cp != 0x7f)) {
            snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
        } else if (w->ascii && cp >= 0x10000) {
            unsigned rest = (unsigned)cp - 0x10000;
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (rest >> 10),
                     0xdc00 + (rest & 0x3ff));
        } else {
            FV_TRY(put_str(w, fv_jj_sub(s, at, at + n)));
            continue;
        }
        FV_TRY(put_text(w, text));
    }
    return put_text(w, "\"");
}

static fv_status new_line(writer *w, int depth) {
    if (!w->lines) return FV_OK;
    FV_TRY(fv_jj_steps(w->r, (size_t)depth / 8));
    FV_TRY(put_text(w, "\n"));
    for (int i = 0; i < depth; i++) FV_TRY(put_str(w, w->indent));
    return FV_OK;
}

static fv_status put_list(writer *w, const fv_jj_list *list, int depth) {
    if (list->n == 0) return put_text(w, "[]");
    FV_TRY(put_text(w, "["));
    for (int32_t i = 0; i < list->n; i++) {
        if (i) FV_TRY(put_str(w, w->item));
        FV_TRY(new_line(w, depth + 1));
        FV_TRY(put(w, &list->v[i], depth + 1));
    }
    FV_TRY(new_line(w, depth));
    return put_text(w, "]");
}

/* Writes a key as a string; numbers, booleans and None as in JSON. */
static fv_status put_key(writer *w, const fv_jj_value *key) {
    if (key->kind == FV_JJ_STR) return put_string(w, key->str);
    if (key->kind > FV_JJ_STR || key->kind == FV_JJ_UNDEFINED)
        return FV_JJ_FAIL(w->r, FV_EINVAL, "a '%s' cannot be a JSON key", fv_jj_type(key));
    FV_TRY(put_text(w, "\""));
    FV_TRY(put(w, key, 0));
    return put_text(w, "\"");
}

static fv_status by_key(writer *w, const fv_jj_dict *d, int32_t *at) {
    for (int32_t i = 0; i < d->keys.n; i++) {
        int32_t k = i;
        int sign = 1;
        for (; w->sorted && k > 0; k--) {
            FV_TRY(fv_jj_order(w->r, &d->keys.v[at[k - 1]], &d->keys.v[i], &sign));
            if (sign <= 0) break;
            at[k] = at[k - 1];
        }
        at[k] = i;
    }
    return FV_OK;
}

static fv_status put_dict(writer *w, const fv_jj_dict *d, int depth) {
    int32_t *at;
    if (d->keys.n == 0) return put_text(w, "{}");
    FV_TRY(fv_jj_alloc(w->r, (size_t)d->keys.n * sizeof *at, (void **)&at));
    FV_TRY(by_key(w, d, at));
    FV_TRY(put_text(w, "{"));
    for (int32_t i = 0; i < d->keys.n; i++) {
        if (i) FV_TRY(put_str(w, w->item));
        FV_TRY(new_line(w, depth + 1));
        FV_TRY(put_key(w, &d->keys.v[at[i]]));
        FV_TRY(put_str(w, w->key));
        FV_TRY(put(w, &d->values.v[at[i]], depth + 1));
    }
    FV_TRY(new_line(w, depth));
    return put_text(w, "}");
}

static fv_status put(writer *w, const fv_jj_value *v, int depth) {
    char text[40];
    if (depth > FV_JINJA_DEPTH)
        return FV_JJ_FAIL(w->r, FV_EINVAL, "a value nests deeper than %d levels", FV_JINJA_DEPTH);
    FV_TRY(fv_jj_steps(w->r, 1));
    switch (v->kind) {
    case FV_JJ_NONE: return put_text(w, "null");
    case FV_JJ_BOOL: return put_text(w, v->b ? "true" : "false");
    case FV_JJ_INT: return fv_jj_put_str(w->r, w->out, v);
    case FV_JJ_FLOAT:
        FV_TRY(fv_jj_steps(w->r, FV_JJ_DIGITS));
        fv_jj_float_repr(v->f, text);
        return put_text(w, v->f - v->f == 0 ? text
                           : v->f != v->f   ? "NaN"
                           : v->f < 0       ? "-Infinity"
                                            : "Infinity");
    case FV_JJ_STR: return put_string(w, v->str);
    case FV_JJ_LIST:
    case FV_JJ_TUPLE: return put_list(w, v->list, depth);
    case FV_JJ_DICT: return put_dict(w, v->dict, depth);
    default: return FV_JJ_FAIL(w->r, FV_EINVAL, "a '%s' is no JSON", fv_jj_type(v));
    }
}

fv_status fv_jj_to_json(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                        fv_jj_value *out) {
    const fv_jj_value *indent = args->bound[1], *separators = args->bound[2];
    fv_jj_value space = fv_jj_text(" "), made;
    fv_jj_out text = {0};
    writer w = {.r = r, .out = &text, .key = fv_jj_text(": ").str};
    w.ascii = args->bound[0] && fv_jj_truth(args->bound[0]);
    w.sorted = args->bound[3] && fv_jj_truth(args->bound[3]);
    w.lines = indent && indent->kind != FV_JJ_NONE;
    w.item = fv_jj_text(w.lines ? "," : ", ").str;
    if (w.lines && indent->kind == FV_JJ_STR) {
        w.indent = indent->str;
    } else if (w.lines) {
        FV_TRY(fv_jj_arithmetic(r, '*', &space, indent, &made));
        if (made.kind != FV_JJ_STR)
            return FV_JJ_FAIL(r, FV_EINVAL, "indent is a '%s'", fv_jj_type(indent));
        w.indent = made.str;
    }
    if (separators && separators->kind != FV_JJ_NONE) {
        fv_jj_list two;
        FV_TRY(fv_jj_items(r, separators, &two));
        if (two.n != 2) return FV_JJ_FAIL(r, FV_EINVAL, "%d separators; JSON has 2", two.n);
        FV_TRY(fv_jj_need_str(r, &two.v[0], "a separator", &w.item));
        FV_TRY(fv_jj_need_str(r, &two.v[1], "a separator", &w.key));
    }
    FV_TRY(put(&w, self, 0));
    *out = fv_jj_taken(&text);
    return FV_OK;
}
