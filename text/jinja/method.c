/* Methods of strings, lists, dicts and loops. Methods that change a list or a dict are missing, as
 * jinja2's sandbox refuses them. */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/internal.h"

#define METHOD(name)                                                                               \
    static fv_status name(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,           \
                          fv_jj_value *out)

static bool given(const fv_jj_value *v) { return v && v->kind != FV_JJ_NONE; }

static fv_status need(fv_jj_run *r, const fv_jj_args *args, int at, fv_jj_str *out) {
    if (!args->bound[at]) return FV_JJ_FAIL(r, FV_EINVAL, "the method needs %d arguments", at + 1);
    return fv_jj_need_str(r, args->bound[at], "an argument", out);
}

static fv_status most(fv_jj_run *r, const fv_jj_value *v, int64_t *out) {
    *out = -1;
    return v ? fv_jj_need_int(r, v, "a count", out) : FV_OK;
}

/* ---- strings ---- */

static fv_status strip_ends(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                            bool left, bool right, fv_jj_value *out) {
    fv_jj_str set;
    if (given(args->bound[0])) {
        FV_TRY(need(r, args, 0, &set));
        FV_TRY(fv_jj_steps(r, fv_jj_reading(self->str.n * set.n))); /* each is looked for in set */
    }
    *out = fv_jj_of(fv_jj_strip(self->str, given(args->bound[0]) ? &set : NULL, left, right));
    return FV_OK;
}

METHOD(strip) { return strip_ends(r, self, args, true, true, out); }
METHOD(lstrip) { return strip_ends(r, self, args, true, false, out); }
METHOD(rstrip) { return strip_ends(r, self, args, false, true, out); }

METHOD(upper) { return (void)args, fv_jj_recase(r, self->str, FV_JJ_UPPER, out); }
METHOD(lower) { return (void)args, fv_jj_recase(r, self->str, FV_JJ_LOWER, out); }
METHOD(capitalize) { return (void)args, fv_jj_recase(r, self->str, FV_JJ_CAPITAL, out); }
METHOD(title) { return (void)args, fv_jj_recase(r, self->str, FV_JJ_TITLE, out); }

METHOD(replace) {
    fv_jj_str was, is;
    int64_t n;
    FV_TRY(need(r, args, 0, &was));
    FV_TRY(need(r, args, 1, &is));
    FV_TRY(most(r, args->bound[2], &n));
    return fv_jj_replace(r, self->str, was, is, n, out);
}

static fv_status split_words(fv_jj_run *r, fv_jj_str s, int64_t n, fv_jj_list *out) {
    int32_t cp;
    for (s = fv_jj_strip(s, NULL, true, false); s.n; s = fv_jj_strip(s, NULL, true, false)) {
        size_t end = 0, len;
        if (n >= 0 && out->n == n) return fv_jj_push(r, out, fv_jj_of(s));
        for (; end < s.n; end += len) {
            len = fv_jj_char(s.s + end, s.n - end, &cp);
            if (fv_jj_is_space(cp)) break;
        }
        FV_TRY(fv_jj_push(r, out, fv_jj_of(fv_jj_sub(s, 0, end))));
        s = fv_jj_sub(s, end, s.n);
    }
    return FV_OK;
}

/* Splits at non-overlapping occurrences of `by` from the left; n: at most so many, -1: all. */
static fv_status split_by(fv_jj_run *r, fv_jj_str s, fv_jj_str by, int64_t n, fv_jj_list *out) {
    size_t from = 0, at;
    if (by.n == 0) return FV_JJ_FAIL(r, FV_EINVAL, "the separator is %s", "empty");
    while ((n < 0 || out->n < n) && (at = fv_jj_find(r, s, by, from)) != SIZE_MAX) {
        FV_TRY(fv_jj_push(r, out, fv_jj_of(fv_jj_sub(s, from, at))));
        from = at + by.n;
    }
    return fv_jj_push(r, out, fv_jj_of(fv_jj_sub(s, from, s.n)));
}

METHOD(split) {
    fv_jj_str by;
    int64_t n;
    FV_TRY(most(r, args->bound[1], &n));
    FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
    if (!given(args->bound[0])) return split_words(r, self->str, n, out->list);
    FV_TRY(need(r, args, 0, &by));
    return split_by(r, self->str, by, n, out->list);
}

/* *found: SIZE_MAX where there is none. */
static fv_status find_last(fv_jj_run *r, fv_jj_str s, fv_jj_str what, size_t *found) {
    *found = SIZE_MAX;
    if (what.n > s.n) return FV_OK;
    for (size_t at = s.n - what.n + 1; at-- > 0 && *found == SIZE_MAX;) {
        if (what.n && s.s[at] != what.s[0]) continue;
        FV_TRY(fv_jj_steps(r, fv_jj_copying(what.n)));
        if (memcmp(s.s + at, what.s, what.n) == 0) *found = at;
    }
    return fv_jj_steps(r, 1 + fv_jj_reading(s.n - (*found == SIZE_MAX ? 0 : *found)));
}

METHOD(rsplit) {
    fv_jj_str by, s = self->str;
    int64_t n;
    size_t at;
    fv_jj_list back = {0};
    FV_TRY(most(r, args->bound[1], &n));
    if (n < 0) return split(r, self, args, out);
    FV_TRY(need(r, args, 0, &by));
    if (by.n == 0) return FV_JJ_FAIL(r, FV_EINVAL, "the separator is %s", "empty");
    FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
    while (back.n < n) {
        FV_TRY(find_last(r, s, by, &at));
        if (at == SIZE_MAX) break;
        FV_TRY(fv_jj_push(r, &back, fv_jj_of(fv_jj_sub(s, at + by.n, s.n))));
        s = fv_jj_sub(s, 0, at);
    }
    FV_TRY(fv_jj_push(r, out->list, fv_jj_of(s)));
    for (int32_t i = back.n - 1; i >= 0; i--) FV_TRY(fv_jj_push(r, out->list, back.v[i]));
    return FV_OK;
}

METHOD(splitlines) {
    bool keep = args->bound[0] && fv_jj_truth(args->bound[0]);
    FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
    return fv_jj_split_lines(r, self->str, keep, out->list);
}

static fv_status cut_at(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args, bool last,
                        fv_jj_value *out) {
    fv_jj_str by, s = self->str;
    FV_TRY(need(r, args, 0, &by));
    if (by.n == 0) return FV_JJ_FAIL(r, FV_EINVAL, "the separator is %s", "empty");
    size_t at = fv_jj_find(r, s, by, 0);
    if (last) FV_TRY(find_last(r, s, by, &at));
    bool found = at != SIZE_MAX;
    size_t a = found ? at : last ? 0 : s.n, b = found ? at + by.n : a;
    FV_TRY(fv_jj_new_list(r, FV_JJ_TUPLE, out));
    FV_TRY(fv_jj_push(r, out->list, fv_jj_of(fv_jj_sub(s, 0, a))));
    FV_TRY(fv_jj_push(r, out->list, fv_jj_of(fv_jj_sub(s, a, b))));
    return fv_jj_push(r, out->list, fv_jj_of(fv_jj_sub(s, b, s.n)));
}

METHOD(partition) { return cut_at(r, self, args, false, out); }
METHOD(rpartition) { return cut_at(r, self, args, true, out); }

static bool has_at_end(fv_jj_str s, fv_jj_str part, bool end) {
    return part.n <= s.n && memcmp(end ? s.s + s.n - part.n : s.s, part.s, part.n) == 0;
}

static fv_status has_affix(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args, bool end,
                           fv_jj_value *out) {
    fv_jj_str part;
    fv_jj_list one = {0}, *all = &one;
    if (!args->bound[0]) return FV_JJ_FAIL(r, FV_EINVAL, "the method needs %d argument", 1);
    if (args->bound[0]->kind == FV_JJ_TUPLE)
        all = args->bound[0]->list;
    else
        FV_TRY(fv_jj_push(r, &one, *args->bound[0]));
    *out = fv_jj_bool(false);
    for (int32_t i = 0; i < all->n && !out->b; i++) {
        FV_TRY(fv_jj_need_str(r, &all->v[i], "an argument", &part));
        FV_TRY(fv_jj_steps(r, 1 + fv_jj_copying(part.n)));
        out->b = has_at_end(self->str, part, end);
    }
    return FV_OK;
}

METHOD(startswith) { return has_affix(r, self, args, false, out); }
METHOD(endswith) { return has_affix(r, self, args, true, out); }

METHOD(removeprefix) {
    fv_jj_str part;
    FV_TRY(need(r, args, 0, &part));
    size_t from = has_at_end(self->str, part, false) ? part.n : 0;
    *out = fv_jj_of(fv_jj_sub(self->str, from, self->str.n));
    return FV_OK;
}

METHOD(removesuffix) {
    fv_jj_str part;
    FV_TRY(need(r, args, 0, &part));
    size_t less = has_at_end(self->str, part, true) ? part.n : 0;
    *out = fv_jj_of(fv_jj_sub(self->str, 0, self->str.n - less));
    return FV_OK;
}

static fv_status place(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args, bool last,
                       bool must, fv_jj_value *out) {
    fv_jj_str what;
    FV_TRY(need(r, args, 0, &what));
    size_t at = fv_jj_find(r, self->str, what, 0);
    if (last) FV_TRY(find_last(r, self->str, what, &at));
    if (at == SIZE_MAX && must) return FV_JJ_FAIL(r, FV_EINVAL, "the string is %s", "not found");
    *out = fv_jj_int(at == SIZE_MAX ? -1 : fv_jj_chars(r, fv_jj_sub(self->str, 0, at)));
    return FV_OK;
}

METHOD(find) { return place(r, self, args, false, false, out); }
METHOD(rfind) { return place(r, self, args, true, false, out); }
METHOD(index_of) { return place(r, self, args, false, true, out); }

METHOD(count) {
    fv_jj_str what;
    int64_t n = 0;
    FV_TRY(need(r, args, 0, &what));
    for (size_t at = 0; what.n && (at = fv_jj_find(r, self->str, what, at)) != SIZE_MAX;
         at += what.n)
        n++;
    *out = fv_jj_int(what.n ? n : fv_jj_chars(r, self->str) + 1);
    return FV_OK;
}

METHOD(join) {
    fv_jj_list items;
    if (!args->bound[0]) return FV_JJ_FAIL(r, FV_EINVAL, "join needs %s", "items");
    FV_TRY(fv_jj_items(r, args->bound[0], &items));
    return fv_jj_join(r, &items, self->str, true, out);
}

static bool is_letter(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_digit(int32_t cp) { return utf8proc_category(cp) == UTF8PROC_CATEGORY_ND; }
static bool is_letter_or_number(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return is_letter(cp) || (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
}

/* True if not empty and all characters are of one class. */
static fv_status all_are(fv_jj_run *r, const fv_jj_value *self, bool (*is)(int32_t cp),
                         fv_jj_value *out) {
    bool all = self->str.n > 0;
    int32_t cp;
    FV_TRY(fv_jj_steps(r, fv_jj_reading(self->str.n)));
    for (size_t at = 0; at < self->str.n && all;) {
        at += fv_jj_char(self->str.s + at, self->str.n - at, &cp);
        all = is(cp);
    }
    *out = fv_jj_bool(all);
    return FV_OK;
}

METHOD(all_alpha) { return (void)args, all_are(r, self, is_letter, out); }
METHOD(all_digit) { return (void)args, all_are(r, self, is_digit, out); }
METHOD(all_alnum) { return (void)args, all_are(r, self, is_letter_or_number, out); }
METHOD(all_space) { return (void)args, all_are(r, self, fv_jj_is_space, out); }

static fv_status test(fv_jj_run *r, const char *name, const fv_jj_value *self, fv_jj_value *out) {
    fv_jj_args none = {.n = 0};
    return fv_jj_call_row(r, fv_jj_find_row(fv_jj_tests, name, strlen(name)), self, &none, out);
}

METHOD(all_upper) { return (void)args, test(r, "upper", self, out); }
METHOD(all_lower) { return (void)args, test(r, "lower", self, out); }

METHOD(format) { return fv_jj_format(r, self->str, args, out); }

const fv_jj_row fv_jj_str_methods[] = {{"strip", "chars", strip},
                                       {"lstrip", "chars", lstrip},
                                       {"rstrip", "chars", rstrip},
                                       {"upper", "", upper},
                                       {"lower", "", lower},
                                       {"capitalize", "", capitalize},
                                       {"title", "", title},
                                       {"replace", "old new count", replace},
                                       {"split", "sep maxsplit", split},
                                       {"rsplit", "sep maxsplit", rsplit},
                                       {"splitlines", "keepends", splitlines},
                                       {"partition", "sep", partition},
                                       {"rpartition", "sep", rpartition},
                                       {"startswith", "prefix", startswith},
                                       {"endswith", "suffix", endswith},
                                       {"removeprefix", "prefix", removeprefix},
                                       {"removesuffix", "suffix", removesuffix},
                                       {"find", "sub", find},
                                       {"rfind", "sub", rfind},
                                       {"index", "sub", index_of},
                                       {"count", "sub", count},
                                       {"join", "iterable", join},
                                       {"isalpha", "", all_alpha},
                                       {"isdigit", "", all_digit},
                                       {"isalnum", "", all_alnum},
                                       {"isspace", "", all_space},
                                       {"isupper", "", all_upper},
                                       {"islower", "", all_lower},
                                       {"format", NULL, format},
                                       {0}};

/* ---- lists ---- */

METHOD(list_index) {
    if (!args->bound[0]) return FV_JJ_FAIL(r, FV_EINVAL, "the method needs %d argument", 1);
    for (int32_t i = 0; i < self->list->n; i++) {
        if (!fv_jj_equal(r, &self->list->v[i], args->bound[0])) continue;
        *out = fv_jj_int(i);
        return FV_OK;
    }
    return FV_JJ_FAIL(r, FV_EINVAL, "the value is %s", "not in the list");
}

METHOD(list_count) {
    int64_t n = 0;
    if (!args->bound[0]) return FV_JJ_FAIL(r, FV_EINVAL, "the method needs %d argument", 1);
    for (int32_t i = 0; i < self->list->n; i++)
        n += fv_jj_equal(r, &self->list->v[i], args->bound[0]);
    *out = fv_jj_int(n);
    return FV_OK;
}

METHOD(copy) {
    (void)r, (void)args;
    *out = *self; /* lists are immutable */
    return FV_OK;
}

const fv_jj_row fv_jj_list_methods[] = {
    {"index", "value", list_index}, {"count", "value", list_count}, {"copy", "", copy}, {0}};

/* ---- dicts ---- */

METHOD(get) {
    if (!args->bound[0]) return FV_JJ_FAIL(r, FV_EINVAL, "the method needs %d argument", 1);
    const fv_jj_value *found = fv_jj_dict_find(r, self->dict, args->bound[0]);
    *out = found ? *found : args->bound[1] ? *args->bound[1] : (fv_jj_value){.kind = FV_JJ_NONE};
    return FV_OK;
}

static fv_status as_list(fv_jj_run *r, const fv_jj_list *items, fv_jj_value *out) {
    FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
    *out->list = *items;
    return FV_OK;
}

METHOD(keys) { return (void)args, as_list(r, &self->dict->keys, out); }
METHOD(values) { return (void)args, as_list(r, &self->dict->values, out); }

METHOD(items) {
    (void)args;
    fv_jj_args none = {.n = 0};
    FV_TRY(fv_jj_call_row(r, fv_jj_find_filter("items", 5), self, &none, out));
    out->kind = FV_JJ_LIST; /* a view can be looped over again */
    return FV_OK;
}

const fv_jj_row fv_jj_dict_methods[] = {{"get", "key default", get}, {"keys", "", keys},
                                        {"values", "", values},      {"items", "", items},
                                        {"copy", "", copy},          {0}};

/* ---- loops ---- */

METHOD(cycle) {
    if (args->n == 0) return FV_JJ_FAIL(r, FV_EINVAL, "cycle needs %s", "items");
    *out = args->v[self->loop->at % args->n];
    return FV_OK;
}

METHOD(changed) {
    fv_jj_value now;
    FV_TRY(fv_jj_new_list(r, FV_JJ_TUPLE, &now));
    for (int32_t i = 0; i < args->n; i++) FV_TRY(fv_jj_push(r, now.list, args->v[i]));
    fv_jj_loop *l = self->loop;
    *out = fv_jj_bool(!l->has_changed || !fv_jj_equal(r, &l->changed, &now));
    l->changed = now;
    l->has_changed = true;
    return FV_OK;
}

const fv_jj_row fv_jj_loop_methods[] = {{"cycle", NULL, cycle}, {"changed", NULL, changed}, {0}};
