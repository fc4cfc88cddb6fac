/* Arrays: elements by place (prefixItems, or a list in `items`), then all further ones alike. Elements that must
 * differ are supported where they are from a list of values: each is written at most once, in the list's order. */
#include <stdlib.h>

#include "grammar/schema_internal.h"

typedef struct shape {
    int64_t n_prefix, min, max; /* max -1: any */
    bool unique, closed;        /* closed: nothing after the prefix */
    fv_parts rest;
} shape;

static const json_t *prefix_of(const json_t *s) {
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    return prefix ? prefix : json_is_array(items) ? items : NULL;
}

/* The schema of elements after the prefix, NULL: any. */
static const json_t *rest_of(const json_t *s) {
    const json_t *items = json_object_get(s, "items");
    return json_is_array(items) ? json_object_get(s, "additionalItems") : items;
}

static fv_status read_shape(fv_schema *x, const fv_parts *flat, shape *a) {
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *s = flat->part[i].schema, *prefix = prefix_of(s), *rest = rest_of(s);
        if (prefix && !json_is_array(prefix))
            return FV_FAIL(FV_EINVAL, "prefixItems must be a list");
        if ((int64_t)json_array_size(prefix) > a->n_prefix)
            a->n_prefix = (int64_t)json_array_size(prefix);
        a->unique |= json_is_true(json_object_get(s, "uniqueItems"));
        a->closed |= json_is_false(rest);
        if (rest) FV_TRY(fv_parts_add(x, &a->rest, rest, 0));
    }
    FV_TRY(fv_schema_count(flat, "minItems", false, &a->min));
    FV_TRY(fv_schema_count(flat, "maxItems", true, &a->max));
    if (a->min < 0) a->min = 0;
    if (a->closed && (a->max < 0 || a->max > a->n_prefix)) a->max = a->n_prefix;
    return FV_OK;
}

/* A value and the white space after it. */
static fv_status element(fv_schema *x, const fv_parts *parts, fv_expr **out) {
    fv_expr *value, *space;
    FV_TRY(fv_schema_rule_of(x, parts, &value));
    FV_TRY(fv_json_space(x->c, &space));
    return fv_expr_seq(x->c, out, value, space, NULL);
}

/* The element at a place before the end of the prefix. */
static fv_status place(fv_schema *x, const fv_parts *flat, int64_t at, fv_expr **out) {
    fv_parts parts = {0};
    fv_status st = FV_OK;
    for (size_t i = 0; i < flat->n && st == FV_OK; i++) {
        const json_t *s = flat->part[i].schema, *prefix = prefix_of(s), *rest = rest_of(s);
        const json_t *here =
            (int64_t)json_array_size(prefix) > at ? json_array_get(prefix, (size_t)at) : rest;
        if (here) st = fv_parts_add(x, &parts, here, 0);
    }
    if (st == FV_OK) st = element(x, &parts, out);
    free(parts.part);
    return st;
}

/* Elements from a list of values, each at most once and in order. */
static fv_status different(fv_schema *x, const shape *a, fv_expr *comma, fv_expr **out) {
    fv_parts flat = {0};
    bool impossible = false;
    json_t *values = NULL;
    fv_status st = fv_schema_flatten(x, &a->rest, &flat, &impossible);
    if (st == FV_OK && !impossible) st = fv_schema_values(x, &flat, &values);
    free(flat.part);
    FV_TRY(st);
    const size_t n = json_array_size(values);
    if (!values || a->n_prefix || a->min > 1 || (a->max >= 0 && a->max < (int64_t)n))
        return FV_FAIL(
            FV_EINVAL,
            "the keyword 'uniqueItems' is supported only for elements of an enum, without "
            "prefixItems, with minItems at most 1 and no smaller maxItems than the enum");
    fv_exprs list = {0};
    for (size_t i = 0; i < n && st == FV_OK; i++) {
        fv_parts one = {0};
        fv_expr *e;
        json_t *made = json_pack("{s:O}", "const", json_array_get(values, i));
        st = fv_schema_keep(x, made);
        if (st == FV_OK) st = fv_parts_add(x, &one, made, 0);
        if (st == FV_OK) st = element(x, &one, &e);
        if (st == FV_OK) st = fv_exprs_add(&list, e);
        free(one.part);
    }
    if (st == FV_OK) st = fv_exprs_add(&list, NULL);
    if (st == FV_OK) st = fv_expr_list(x->c, FV_EXPR_MEMBERS, list.item, list.n, out);
    free(list.item);
    FV_TRY(st);
    bool *need;
    FV_TRY(FV_COMPILE_NEW(x->c, n + 1, need));
    (*out)->need = need;
    (*out)->between = comma;
    (*out)->min = (int32_t)a->min;
    return FV_OK;
}

/* All elements with the commas between them: those of the prefix from the last to the first, each after a comma but the
 * first; what follows an element that may be missing is missing too. */
static fv_status elements(fv_schema *x, const fv_parts *flat, const shape *a, fv_expr *comma,
                          fv_expr **out) {
    fv_expr *rest, *one, *all;
    const int64_t n = a->max >= 0 && a->max < a->n_prefix ? a->max : a->n_prefix;
    const int64_t min = a->min > n ? a->min - n : 0, max = a->max < 0 ? -1 : a->max - n;
    FV_TRY(element(x, &a->rest, &rest));
    FV_TRY(fv_expr_seq(x->c, &one, comma, rest, NULL));
    if (n == 0) {
        if (max == 0) return fv_expr_text(x->c, "", 0, out);
        FV_TRY(fv_expr_repeat(x->c, one, min > 0 ? min - 1 : 0, max < 0 ? -1 : max - 1, &all));
        FV_TRY(fv_expr_seq(x->c, out, rest, all, NULL));
        return min > 0 ? FV_OK : fv_expr_repeat(x->c, *out, 0, 1, out);
    }
    FV_TRY(fv_expr_repeat(x->c, one, min, max, &all));
    for (int64_t i = n; i-- > 0;) {
        FV_TRY(place(x, flat, i, &one));
        if (i > 0)
            FV_TRY(fv_expr_seq(x->c, &all, comma, one, all, NULL));
        else
            FV_TRY(fv_expr_seq(x->c, &all, one, all, NULL));
        if (i >= a->min) FV_TRY(fv_expr_repeat(x->c, all, 0, 1, &all));
    }
    *out = all;
    return FV_OK;
}

static fv_status array(fv_schema *x, const fv_parts *flat, shape *a, fv_expr **out) {
    fv_expr *space, *comma, *open, *close, *inner;
    FV_TRY(read_shape(x, flat, a));
    if (a->max >= 0 && a->min > a->max) return fv_expr_set(x->c, NULL, 0, out);
    FV_TRY(fv_json_space(x->c, &space));
    FV_TRY(fv_expr_text(x->c, ",", 1, &comma));
    FV_TRY(fv_expr_seq(x->c, &comma, comma, space, NULL));
    FV_TRY(fv_expr_text(x->c, "[", 1, &open));
    FV_TRY(fv_expr_text(x->c, "]", 1, &close));
    if (a->unique && a->max != 0 && a->max != 1)
        FV_TRY(different(x, a, comma, &inner));
    else
        FV_TRY(elements(x, flat, a, comma, &inner));
    return fv_expr_seq(x->c, out, open, space, inner, close, NULL);
}

fv_status fv_schema_array(fv_schema *x, const fv_parts *flat, fv_expr **out) {
    shape a = {.min = -1, .max = -1};
    fv_status st = array(x, flat, &a, out);
    free(a.rest.part);
    return st;
}
