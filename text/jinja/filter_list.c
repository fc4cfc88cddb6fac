/* Filters of lists. Filters that are generators in Jinja give FV_JJ_ITER. */
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

#define FILTER(name)                                                                               \
    static fv_status name(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,           \
                          fv_jj_value *out)

static bool flag(const fv_jj_value *given) { return given && fv_jj_truth(given); }

static bool given(const fv_jj_value *v) { return v && v->kind != FV_JJ_NONE; }

FILTER(list) {
    (void)args;
    fv_jj_list items;
    FV_TRY(fv_jj_items(r, self, &items));
    FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
    *out->list = items;
    out->list->cap = items.n; /* full: its memory may be shared, and is copied to grow */
    return FV_OK;
}

FILTER(first) {
    (void)args;
    fv_jj_list items;
    FV_TRY(fv_jj_items(r, self, &items));
    *out = items.n ? items.v[0] : fv_jj_undefined("the first item of nothing");
    return FV_OK;
}

FILTER(last) {
    (void)args;
    fv_jj_list items;
    FV_TRY(fv_jj_items(r, self, &items));
    *out = items.n ? items.v[items.n - 1] : fv_jj_undefined("the last item of nothing");
    return FV_OK;
}

FILTER(reverse) {
    (void)args;
    fv_jj_list items;
    fv_jj_out text = {0};
    FV_TRY(fv_jj_items(r, self, &items));
    FV_TRY(fv_jj_new_list(r, FV_JJ_ITER, out));
    for (int32_t i = items.n - 1; i >= 0; i--) {
        const fv_jj_value *one = &items.v[i];
        if (self->kind == FV_JJ_STR)
            FV_TRY(fv_jj_put(r, &text, one->str.s, one->str.n, one->str.user));
        else
            FV_TRY(fv_jj_push(r, out->list, *one));
    }
    if (self->kind == FV_JJ_STR) *out = fv_jj_taken(&text);
    return FV_OK;
}

/* Gives the items, or with `attribute` that attribute of each. */
static fv_status column(fv_jj_run *r, const fv_jj_value *self, const fv_jj_value *attribute,
                        fv_jj_list *out) {
    fv_jj_list items;
    fv_jj_value v;
    FV_TRY(fv_jj_items(r, self, &items));
    *out = items;
    if (!given(attribute)) return FV_OK;
    *out = (fv_jj_list){0};
    for (int32_t i = 0; i < items.n; i++) {
        FV_TRY(fv_jj_path(r, &items.v[i], attribute, NULL, &v));
        FV_TRY(fv_jj_push(r, out, v));
    }
    return FV_OK;
}

FILTER(join) {
    fv_jj_list items;
    fv_jj_str between = {.s = ""};
    if (given(args->bound[0])) FV_TRY(fv_jj_str_of(r, args->bound[0], &between));
    FV_TRY(column(r, self, args->bound[1], &items));
    return fv_jj_join(r, &items, between, false, out);
}

/* ---- order ---- */

/* Gives the keys by which items are compared; strings in lower case unless `exact`.
 */
static fv_status keys_of(fv_jj_run *r, const fv_jj_list *items, const fv_jj_value *attribute,
                         bool exact, fv_jj_list *keys) {
    fv_jj_value all = {FV_JJ_LIST, {.list = (fv_jj_list *)(uintptr_t)items}}, v;
    fv_jj_list raw;
    FV_TRY(column(r, &all, attribute, &raw));
    *keys = (fv_jj_list){0};
    for (int32_t i = 0; i < raw.n; i++) {
        v = raw.v[i];
        if (v.kind == FV_JJ_STR && !exact) FV_TRY(fv_jj_recase(r, v.str, FV_JJ_LOWER, &v));
        FV_TRY(fv_jj_push(r, keys, v));
    }
    return FV_OK;
}

/* Sorts indices by their keys, stably. */
static fv_status merge_sort(fv_jj_run *r, const fv_jj_list *keys, bool back, int32_t *at,
                            int32_t *tmp, int32_t n) {
    if (n < 2) return FV_OK;
    int32_t half = n / 2, i = 0, k = half;
    FV_TRY(merge_sort(r, keys, back, at, tmp, half));
    FV_TRY(merge_sort(r, keys, back, at + half, tmp, n - half));
    for (int32_t to = 0; to < n; to++) {
        int sign = -1;
        if (i < half && k < n) {
            FV_TRY(fv_jj_order(r, &keys->v[at[i]], &keys->v[at[k]], &sign));
            if (back) sign = -sign;
        }
        tmp[to] = i < half && (k >= n || sign <= 0) ? at[i++] : at[k++];
    }
    memcpy(at, tmp, (size_t)n * sizeof *at);
    return FV_OK;
}

static fv_status sorted(fv_jj_run *r, const fv_jj_list *items, const fv_jj_list *keys, bool back,
                        fv_jj_value *out) {
    int32_t *at;
    FV_TRY(fv_jj_alloc(r, (size_t)items->n * 2 * sizeof *at, (void **)&at));
    for (int32_t i = 0; i < items->n; i++) at[i] = i;
    FV_TRY(merge_sort(r, keys, back, at, at + items->n, items->n));
    FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
    for (int32_t i = 0; i < items->n; i++) FV_TRY(fv_jj_push(r, out->list, items->v[at[i]]));
    return FV_OK;
}

FILTER(sort) {
    fv_jj_list items, keys;
    FV_TRY(fv_jj_items(r, self, &items));
    FV_TRY(keys_of(r, &items, args->bound[2], flag(args->bound[1]), &keys));
    return sorted(r, &items, &keys, flag(args->bound[0]), out);
}

FILTER(unique) {
    fv_jj_list items, keys;
    fv_jj_dict seen = {0};
    FV_TRY(fv_jj_items(r, self, &items));
    FV_TRY(keys_of(r, &items, args->bound[1], flag(args->bound[0]), &keys));
    FV_TRY(fv_jj_new_list(r, FV_JJ_ITER, out));
    for (int32_t i = 0; i < items.n; i++) {
        if (fv_jj_dict_find(r, &seen, &keys.v[i])) continue;
        FV_TRY(fv_jj_dict_put(r, &seen, &keys.v[i], keys.v[i]));
        FV_TRY(fv_jj_push(r, out->list, items.v[i]));
    }
    return FV_OK;
}

static fv_status extreme(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args, int want,
                         fv_jj_value *out) {
    fv_jj_list items, keys;
    int32_t best = 0;
    int sign;
    FV_TRY(fv_jj_items(r, self, &items));
    FV_TRY(keys_of(r, &items, args->bound[1], flag(args->bound[0]), &keys));
    for (int32_t i = 1; i < items.n; i++) {
        FV_TRY(fv_jj_order(r, &keys.v[i], &keys.v[best], &sign));
        if (sign * want > 0) best = i;
    }
    *out = items.n ? items.v[best] : fv_jj_undefined("an item of nothing");
    return FV_OK;
}

FILTER(min) { return extreme(r, self, args, -1, out); }
FILTER(max) { return extreme(r, self, args, 1, out); }

FILTER(sum) {
    fv_jj_list items;
    FV_TRY(column(r, self, args->bound[0], &items));
    *out = args->bound[1] ? *args->bound[1] : fv_jj_int(0);
    for (int32_t i = 0; i < items.n; i++) {
        FV_TRY(fv_jj_steps(r, 1));
        FV_TRY(fv_jj_arithmetic(r, '+', out, &items.v[i], out));
    }
    return FV_OK;
}

/* ---- dicts ---- */

static fv_status pairs(fv_jj_run *r, const fv_jj_value *self, fv_jj_list *out) {
    fv_jj_value pair;
    *out = (fv_jj_list){0};
    if (self->kind == FV_JJ_UNDEFINED) return FV_OK;
    if (self->kind != FV_JJ_DICT)
        return FV_JJ_FAIL(r, FV_EINVAL, "a '%s' has no pairs; a dict has", fv_jj_type(self));
    for (int32_t i = 0; i < self->dict->keys.n; i++) {
        FV_TRY(fv_jj_new_list(r, FV_JJ_TUPLE, &pair));
        FV_TRY(fv_jj_push(r, pair.list, self->dict->keys.v[i]));
        FV_TRY(fv_jj_push(r, pair.list, self->dict->values.v[i]));
        FV_TRY(fv_jj_push(r, out, pair));
    }
    return FV_OK;
}

FILTER(items_of) {
    (void)args;
    FV_TRY(fv_jj_new_list(r, FV_JJ_ITER, out));
    return pairs(r, self, out->list);
}

FILTER(dictsort) {
    fv_jj_list all, keys;
    fv_jj_value by = fv_jj_int(0);
    if (args->bound[1] && args->bound[1]->kind == FV_JJ_STR &&
        fv_jj_str_is(args->bound[1]->str, "value"))
        by = fv_jj_int(1);
    FV_TRY(pairs(r, self, &all));
    FV_TRY(keys_of(r, &all, &by, flag(args->bound[0]), &keys));
    return sorted(r, &all, &keys, flag(args->bound[2]), out);
}

/* ---- map and choice ---- */

static const fv_jj_value *named(const fv_jj_args *args, const char *name) {
    for (int32_t i = 0; i < args->n; i++)
        if (args->name[i] && strcmp(args->name[i], name) == 0) return &args->v[i];
    return NULL;
}

/* Calls the filter or test that args[at] names, with the arguments that follow. */
static fv_status call_named(fv_jj_run *r, const fv_jj_args *args, int32_t at, bool is_test,
                            const fv_jj_value *v, fv_jj_value *out) {
    fv_jj_str name;
    FV_TRY(fv_jj_need_str(r, &args->v[at], "the name of a filter or a test", &name));
    const fv_jj_row *row =
        is_test ? fv_jj_find_row(fv_jj_tests, name.s, name.n) : fv_jj_find_filter(name.s, name.n);
    fv_jj_args rest = {.v = args->v + at + 1, .name = args->name + at + 1, .n = args->n - at - 1};
    if (!row)
        return FV_JJ_FAIL(r, FV_EUNSUPPORTED, "the %s '%.*s' is not supported",
                          is_test ? "test" : "filter", (int)(name.n < 100 ? name.n : 100), name.s);
    if (++r->depth > FV_JINJA_DEPTH) /* map('map', 'map', ...) */
        return FV_JJ_FAIL(r, FV_EINVAL, "more than %d levels of nesting", FV_JINJA_DEPTH);
    FV_TRY(fv_jj_call_row(r, row, v, &rest, out));
    r->depth--;
    return FV_OK;
}

/* jinja2 loops over a value only if it is true: none has no items here. */
static fv_status items_if_any(fv_jj_run *r, const fv_jj_value *self, fv_jj_list *out) {
    *out = (fv_jj_list){0};
    return fv_jj_truth(self) ? fv_jj_items(r, self, out) : FV_OK;
}

FILTER(map) {
    const fv_jj_value *attribute = named(args, "attribute"), *otherwise = named(args, "default");
    fv_jj_list items;
    fv_jj_value v;
    if (!attribute && args->n == 0)
        return FV_JJ_FAIL(r, FV_EINVAL, "map needs %s", "a filter or an attribute");
    FV_TRY(items_if_any(r, self, &items));
    FV_TRY(fv_jj_new_list(r, FV_JJ_ITER, out));
    for (int32_t i = 0; i < items.n; i++) {
        if (attribute) {
            FV_TRY(fv_jj_path(r, &items.v[i], attribute, otherwise, &v));
        } else {
            FV_TRY(call_named(r, args, 0, false, &items.v[i], &v));
        }
        FV_TRY(fv_jj_push(r, out->list, v));
    }
    return FV_OK;
}

static fv_status choose(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                        bool of_attribute, bool keep, fv_jj_value *out) {
    fv_jj_list items;
    fv_jj_value v, holds;
    int32_t test = of_attribute;
    if (args->n < test)
        return FV_JJ_FAIL(r, FV_EINVAL, "%s is missing", "the name of an attribute");
    FV_TRY(items_if_any(r, self, &items));
    FV_TRY(fv_jj_new_list(r, FV_JJ_ITER, out));
    for (int32_t i = 0; i < items.n; i++) {
        FV_TRY(fv_jj_steps(r, 1));
        v = items.v[i];
        if (of_attribute) FV_TRY(fv_jj_path(r, &items.v[i], &args->v[0], NULL, &v));
        holds = v;
        if (args->n > test) FV_TRY(call_named(r, args, test, true, &v, &holds));
        if (fv_jj_truth(&holds) == keep) FV_TRY(fv_jj_push(r, out->list, items.v[i]));
    }
    return FV_OK;
}

FILTER(select_if) { return choose(r, self, args, false, true, out); }
FILTER(reject) { return choose(r, self, args, false, false, out); }
FILTER(selectattr) { return choose(r, self, args, true, true, out); }
FILTER(rejectattr) { return choose(r, self, args, true, false, out); }

FILTER(attr) {
    fv_jj_str name;
    if (!args->bound[0]) return FV_JJ_FAIL(r, FV_EINVAL, "attr needs %s", "a name");
    FV_TRY(fv_jj_need_str(r, args->bound[0], "the name of an attribute", &name));
    *out = fv_jj_undefined("an attribute");
    return self->kind == FV_JJ_NAMESPACE || self->kind == FV_JJ_LOOP
               ? fv_jj_item(r, self, args->bound[0], out)
               : FV_OK;
}

const fv_jj_row fv_jj_list_filters[] = {{"list", "", list},
                                        {"first", "", first},
                                        {"last", "", last},
                                        {"reverse", "", reverse},
                                        {"join", "d attribute", join},
                                        {"sort", "reverse case_sensitive attribute", sort},
                                        {"unique", "case_sensitive attribute", unique},
                                        {"min", "case_sensitive attribute", min},
                                        {"max", "case_sensitive attribute", max},
                                        {"sum", "attribute start", sum},
                                        {"items", "", items_of},
                                        {"dictsort", "case_sensitive by reverse", dictsort},
                                        {"map", NULL, map},
                                        {"select", NULL, select_if},
                                        {"reject", NULL, reject},
                                        {"selectattr", NULL, selectattr},
                                        {"rejectattr", NULL, rejectattr},
                                        {"attr", "name", attr},
                                        {0}};
