/* Python's semantics of values: truth, equality, order, items. */
#include <string.h>

#include "text/jinja/internal.h"

fv_jj_value fv_jj_text(const char *s) { return fv_jj_of((fv_jj_str){.s = s, .n = strlen(s)}); }

fv_jj_value fv_jj_undefined(const char *name) {
    fv_jj_value v = fv_jj_text(name);
    v.kind = FV_JJ_UNDEFINED;
    return v;
}

const char *fv_jj_type(const fv_jj_value *v) {
    static const char *const names[] = {[FV_JJ_UNDEFINED] = "Undefined", [FV_JJ_NONE] = "NoneType",
                                        [FV_JJ_BOOL] = "bool",           [FV_JJ_INT] = "int",
                                        [FV_JJ_FLOAT] = "float",         [FV_JJ_STR] = "str",
                                        [FV_JJ_LIST] = "list",           [FV_JJ_TUPLE] = "tuple",
                                        [FV_JJ_ITER] = "generator",      [FV_JJ_DICT] = "dict",
                                        [FV_JJ_NAMESPACE] = "namespace", [FV_JJ_LOOP] = "loop",
                                        [FV_JJ_CALLABLE] = "function"};
    return names[v->kind];
}

static bool is_list(const fv_jj_value *v) {
    return v->kind == FV_JJ_LIST || v->kind == FV_JJ_TUPLE;
}

bool fv_jj_truth(const fv_jj_value *v) {
    switch (v->kind) {
    case FV_JJ_UNDEFINED:
    case FV_JJ_NONE: return false;
    case FV_JJ_BOOL: return v->b;
    case FV_JJ_INT: return v->i != 0;
    case FV_JJ_FLOAT: return v->f != 0;
    case FV_JJ_STR: return v->str.n != 0;
    case FV_JJ_LIST:
    case FV_JJ_TUPLE: return v->list->n != 0;
    case FV_JJ_DICT: return v->dict->keys.n != 0;
    default: return true;
    }
}

static bool equal(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b, int depth);

static bool equal_lists(fv_jj_run *r, const fv_jj_list *a, const fv_jj_list *b, int depth) {
    if (a->n != b->n) return false;
    for (int32_t i = 0; i < a->n; i++)
        if (!equal(r, &a->v[i], &b->v[i], depth)) return false;
    return true;
}

static bool equal_dicts(fv_jj_run *r, const fv_jj_dict *a, const fv_jj_dict *b, int depth) {
    if (a->keys.n != b->keys.n) return false;
    for (int32_t i = 0; i < a->keys.n; i++) {
        const fv_jj_value *other = fv_jj_dict_find(r, b, &a->keys.v[i]);
        if (!other || !equal(r, &a->values.v[i], other, depth)) return false;
    }
    return true;
}

static bool equal(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b, int depth) {
    bool text = a->kind == FV_JJ_STR && b->kind == FV_JJ_STR && a->str.n == b->str.n;
    if (!fv_jj_spend(r, 1 + (text ? fv_jj_copying(a->str.n) : 0)) || depth > FV_JINJA_DEPTH)
        return false;
    if (fv_jj_is_number(a) && fv_jj_is_number(b)) {
        if (a->kind == FV_JJ_FLOAT || b->kind == FV_JJ_FLOAT)
            return fv_jj_double(a) == fv_jj_double(b);
        return fv_jj_whole(a) == fv_jj_whole(b);
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case FV_JJ_UNDEFINED:
    case FV_JJ_NONE: return true;
    case FV_JJ_STR: return text && memcmp(a->str.s, b->str.s, a->str.n) == 0;
    case FV_JJ_LIST:
    case FV_JJ_TUPLE: return a->list == b->list || equal_lists(r, a->list, b->list, depth + 1);
    case FV_JJ_DICT: return a->dict == b->dict || equal_dicts(r, a->dict, b->dict, depth + 1);
    default: return a->list == b->list; /* identity */
    }
}

bool fv_jj_equal(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b) {
    return equal(r, a, b, 0);
}

static int sign_of(bool less, bool more) { return more - less; }

static fv_status order(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b, int depth,
                       int *sign) {
    FV_TRY(fv_jj_fail_undefined(r, a));
    FV_TRY(fv_jj_fail_undefined(r, b));
    FV_TRY(fv_jj_steps(r, 1));
    if (fv_jj_is_number(a) && fv_jj_is_number(b)) {
        if (a->kind == FV_JJ_FLOAT || b->kind == FV_JJ_FLOAT)
            *sign = sign_of(fv_jj_double(a) < fv_jj_double(b), fv_jj_double(a) > fv_jj_double(b));
        else
            *sign = sign_of(fv_jj_whole(a) < fv_jj_whole(b), fv_jj_whole(a) > fv_jj_whole(b));
        return FV_OK;
    }
    if (a->kind == FV_JJ_STR && b->kind == FV_JJ_STR) {
        size_t n = a->str.n < b->str.n ? a->str.n : b->str.n;
        FV_TRY(fv_jj_steps(r, fv_jj_copying(n)));
        int cmp = memcmp(a->str.s, b->str.s, n);
        *sign = cmp ? cmp : sign_of(a->str.n<b->str.n, a->str.n> b->str.n);
        return FV_OK;
    }
    if (a->kind != b->kind || !is_list(a) || depth > FV_JINJA_DEPTH)
        return FV_JJ_FAIL(r, FV_EINVAL, "'%s' and '%s' have no order", fv_jj_type(a),
                          fv_jj_type(b));
    for (int32_t i = 0; i < a->list->n && i < b->list->n; i++)
        if (!fv_jj_equal(r, &a->list->v[i], &b->list->v[i]))
            return order(r, &a->list->v[i], &b->list->v[i], depth + 1, sign);
    *sign = sign_of(a->list->n<b->list->n, a->list->n> b->list->n);
    return FV_OK;
}

fv_status fv_jj_order(fv_jj_run *r, const fv_jj_value *a, const fv_jj_value *b, int *sign) {
    return order(r, a, b, 0, sign);
}

static bool among(fv_jj_run *r, const fv_jj_list *list, const fv_jj_value *v) {
    for (int32_t i = 0; i < list->n; i++)
        if (fv_jj_equal(r, &list->v[i], v)) return true;
    return false;
}

fv_status fv_jj_contains(fv_jj_run *r, const fv_jj_value *in, const fv_jj_value *v, bool *out) {
    fv_jj_str part;
    fv_jj_list items;
    if (in->kind == FV_JJ_STR) {
        FV_TRY(fv_jj_need_str(r, v, "what is looked for in a string", &part));
        *out = fv_jj_find(r, in->str, part, 0) != SIZE_MAX;
        return FV_OK;
    }
    FV_TRY(fv_jj_items(r, in, &items));
    *out = among(r, &items, v);
    return FV_OK;
}

fv_status fv_jj_items(fv_jj_run *r, const fv_jj_value *v, fv_jj_list *out) {
    int32_t cp;
    *out = (fv_jj_list){0};
    switch (v->kind) {
    case FV_JJ_UNDEFINED: return FV_OK;
    case FV_JJ_LIST:
    case FV_JJ_TUPLE: *out = *v->list; return FV_OK;
    case FV_JJ_ITER:
        *out = *v->list;
        *v->list = (fv_jj_list){0};
        return FV_OK;
    case FV_JJ_DICT: *out = v->dict->keys; return FV_OK;
    case FV_JJ_STR:
        for (size_t at = 0, n; at < v->str.n; at += n) {
            n = fv_jj_char(v->str.s + at, v->str.n - at, &cp);
            FV_TRY(fv_jj_push(r, out, fv_jj_of(fv_jj_sub(v->str, at, at + n))));
        }
        return FV_OK;
    default: return FV_JJ_FAIL(r, FV_EINVAL, "a '%s' has no items to loop over", fv_jj_type(v));
    }
}

fv_status fv_jj_fail_undefined(fv_jj_run *r, const fv_jj_value *v) {
    if (v->kind != FV_JJ_UNDEFINED) return FV_OK;
    return FV_JJ_FAIL(r, FV_EINVAL, "'%.*s' is undefined", (int)(v->str.n < 100 ? v->str.n : 100),
                      v->str.s);
}

fv_status fv_jj_need_str(fv_jj_run *r, const fv_jj_value *v, const char *what, fv_jj_str *out) {
    FV_TRY(fv_jj_fail_undefined(r, v));
    if (v->kind != FV_JJ_STR)
        return FV_JJ_FAIL(r, FV_EINVAL, "%s must be a string, not '%s'", what, fv_jj_type(v));
    *out = v->str;
    return FV_OK;
}

fv_status fv_jj_need_int(fv_jj_run *r, const fv_jj_value *v, const char *what, int64_t *out) {
    FV_TRY(fv_jj_fail_undefined(r, v));
    if (v->kind != FV_JJ_INT && v->kind != FV_JJ_BOOL)
        return FV_JJ_FAIL(r, FV_EINVAL, "%s must be an integer, not '%s'", what, fv_jj_type(v));
    *out = fv_jj_whole(v);
    return FV_OK;
}

/* Tells whether j is the name of a role from which templates make special tokens. */
static bool is_role(const json_t *j) {
    static const char *const known[] = {
        "system",          "user",      "assistant",     "developer", "tool",      "function",
        "observation",     "ipython",   "tool_response", "document",  "documents", "context",
        "available_tools", "tool_call", "tools",         "model"};
    const char *role = json_string_value(j);
    for (size_t i = 0; role && i < sizeof known / sizeof *known; i++)
        if (strcmp(role, known[i]) == 0) return true;
    return false;
}

/* Makes a string of s; `user`: each byte is marked as the user's. */
static fv_status string_of(fv_jj_run *r, const char *s, size_t n, bool user, fv_jj_value *out) {
    uint8_t *marks;
    *out = fv_jj_of((fv_jj_str){.s = s, .n = n});
    if (!user || n == 0) return FV_OK;
    FV_TRY(fv_jj_alloc(r, n, (void **)&marks));
    memset(marks, 1, n);
    out->str.user = marks;
    return FV_OK;
}

static fv_status of_json(fv_jj_run *r, const json_t *j, bool user, int depth, fv_jj_value *out) {
    const char *key;
    json_t *member;
    fv_jj_value v;
    FV_TRY(fv_jj_steps(r, 1));
    if (depth > FV_JINJA_DEPTH)
        return FV_JJ_FAIL(r, FV_EINVAL, "a value nests deeper than %d levels", FV_JINJA_DEPTH);
    switch (json_typeof(j)) {
    case JSON_NULL: *out = (fv_jj_value){.kind = FV_JJ_NONE}; return FV_OK;
    case JSON_TRUE:
    case JSON_FALSE: *out = fv_jj_bool(json_is_true(j)); return FV_OK;
    case JSON_INTEGER: *out = fv_jj_int(json_integer_value(j)); return FV_OK;
    case JSON_REAL: *out = fv_jj_float(json_real_value(j)); return FV_OK;
    case JSON_STRING: return string_of(r, json_string_value(j), json_string_length(j), user, out);
    case JSON_ARRAY:
        FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
        for (size_t i = 0; i < json_array_size(j); i++) {
            FV_TRY(of_json(r, json_array_get(j, i), user, depth + 1, &v));
            FV_TRY(fv_jj_push(r, out->list, v));
        }
        return FV_OK;
    case JSON_OBJECT: break;
    }
    FV_TRY(fv_jj_new_dict(r, FV_JJ_DICT, out));
    json_object_foreach((json_t *)(uintptr_t)j, key, member) {
        bool marked = user && !(strcmp(key, "role") == 0 && is_role(member));
        fv_jj_value k;
        FV_TRY(string_of(r, key, strlen(key), user, &k));
        FV_TRY(of_json(r, member, marked, depth + 1, &v));
        FV_TRY(fv_jj_dict_put(r, out->dict, &k, v));
    }
    return FV_OK;
}

fv_status fv_jj_of_json(fv_jj_run *r, const json_t *j, bool user, fv_jj_value *out) {
    return of_json(r, j, user, 0, out);
}
