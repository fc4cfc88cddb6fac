/* String operations of filters and methods. Letters change case by Unicode's simple mapping, except
 * ß to SS; Python maps a few more letters to several. */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/internal.h"

fv_status fv_jj_replace(fv_jj_run *r, fv_jj_str s, fv_jj_str was, fv_jj_str is, int64_t most,
                        fv_jj_value *out) {
    fv_jj_out text = {0};
    size_t done = 0, at = 0;
    int32_t cp;
    for (; most != 0 && (at = fv_jj_find(r, s, was, at)) != SIZE_MAX; most -= most > 0) {
        FV_TRY(fv_jj_put(r, &text, s.s + done, at - done, s.user ? s.user + done : NULL));
        FV_TRY(fv_jj_put(r, &text, is.s, is.n, is.user));
        FV_TRY(fv_jj_steps(r, 1));
        done = at += was.n;
        if (was.n) continue;
        if (at >= s.n) break;
        at += fv_jj_char(s.s + at, s.n - at, &cp); /* before each character and at the end */
    }
    FV_TRY(fv_jj_put(r, &text, s.s + done, s.n - done, s.user ? s.user + done : NULL));
    *out = fv_jj_taken(&text);
    return FV_OK;
}

fv_status fv_jj_escape(fv_jj_run *r, fv_jj_str s, fv_jj_value *out) {
    static const char *const pairs[][2] = {
        {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    *out = fv_jj_of(s);
    for (size_t i = 0; !s.markup && i < sizeof pairs / sizeof *pairs; i++)
        FV_TRY(fv_jj_replace(r, out->str, fv_jj_text(pairs[i][0]).str, fv_jj_text(pairs[i][1]).str,
                             -1, out));
    out->str.markup = true;
    return FV_OK;
}

static bool is_cased(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

fv_status fv_jj_recase(fv_jj_run *r, fv_jj_str s, fv_jj_case to, fv_jj_value *out) {
    fv_jj_out text = {0};
    bool first = true; /* the first letter of a word, or of the text */
    int32_t cp;
    FV_TRY(fv_jj_steps(r, fv_jj_writing(s.n)));
    for (size_t at = 0, n; at < s.n; at += n) {
        n = fv_jj_char(s.s + at, s.n - at, &cp);
        bool user = s.user && s.user[at], upper = to == FV_JJ_UPPER || (first && to != FV_JJ_LOWER);
        if (to == FV_JJ_CAPITAL) first = false;
        if (to == FV_JJ_TITLE) first = !is_cased(cp);
        if (to == FV_JJ_WORDS)
            first = fv_jj_is_space(cp) || (cp < 128 && cp && strchr("-({[<", cp));
        int32_t made = !upper                                     ? utf8proc_tolower(cp)
                       : to == FV_JJ_CAPITAL || to == FV_JJ_TITLE ? utf8proc_totitle(cp)
                                                                  : utf8proc_toupper(cp);
        if (cp == 0xdf && upper) {
            FV_TRY(fv_jj_put_char(r, &text, 'S', user));
            made = to == FV_JJ_CAPITAL || to == FV_JJ_TITLE ? 's' : 'S';
        }
        FV_TRY(fv_jj_put_char(r, &text, made, user));
    }
    *out = fv_jj_taken(&text);
    return FV_OK;
}

static bool ends_line(int32_t cp) {
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

fv_status fv_jj_split_lines(fv_jj_run *r, fv_jj_str s, bool keep_ends, fv_jj_list *out) {
    size_t from = 0;
    int32_t cp;
    *out = (fv_jj_list){0};
    FV_TRY(fv_jj_steps(r, fv_jj_reading(s.n)));
    for (size_t at = 0; at < s.n;) {
        size_t n = fv_jj_char(s.s + at, s.n - at, &cp);
        if (ends_line(cp)) {
            if (cp == '\r' && at + 1 < s.n && s.s[at + 1] == '\n') n++;
            FV_TRY(fv_jj_push(r, out, fv_jj_of(fv_jj_sub(s, from, keep_ends ? at + n : at))));
            from = at + n;
        }
        at += n;
    }
    return from < s.n ? fv_jj_push(r, out, fv_jj_of(fv_jj_sub(s, from, s.n))) : FV_OK;
}

fv_status fv_jj_join(fv_jj_run *r, const fv_jj_list *items, fv_jj_str between, bool only_str,
                     fv_jj_value *out) {
    fv_jj_out text = {0};
    fv_jj_str s;
    for (int32_t i = 0; i < items->n; i++) {
        FV_TRY(fv_jj_steps(r, 1));
        if (i) FV_TRY(fv_jj_put(r, &text, between.s, between.n, between.user));
        if (only_str) FV_TRY(fv_jj_need_str(r, &items->v[i], "an item to join", &s));
        FV_TRY(fv_jj_put_str(r, &text, &items->v[i]));
    }
    *out = fv_jj_taken(&text);
    return FV_OK;
}
