/* The members of an object as Qwen's calls have them, in the order of `properties`:
 *
 *     <parameter=NAME>
 *     VALUE
 *     </parameter>
 *
 * A string is as it is, any other value JSON. Who reads this takes a value for a string unless it is JSON of another
 * type that the schema allows (text/calls/xml.c), so a value that may be a string or something else can be held to
 * its types alone. */
#include <string.h>

#include "grammar/tag_internal.h"

static const char closes[] = "\n</parameter>\n";
static const char end[] = "</parameter>";

enum { REF_MAX = 512, TYPES_DEPTH = 8 };

static bool is_annotation(const char *key) {
    static const char *const list[] = {"title", "description", "default", "examples"};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i], key) == 0) return true;
    return false;
}

/* Whether the schema has no keywords but these, a list that ends with NULL, and annotations. */
static bool has_only(const json_t *schema, const char *const *keys) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)schema, key, v) {
        bool is = is_annotation(key);
        for (size_t i = 0; keys[i]; i++) is |= strcmp(keys[i], key) == 0;
        if (!is) return false;
    }
    return true;
}

typedef struct types {
    bool string, other, unknown;
} types;

static void note(types *t, const json_t *name) {
    const char *s = json_string_value(name);
    t->string |= s && strcmp(s, "string") == 0;
    t->other |= s && strcmp(s, "string") != 0;
    t->unknown |= !s;
}

static void note_value(types *t, const json_t *v) {
    *(json_is_string(v) ? &t->string : &t->other) = true;
}

/* Follows a reference "#/a/b" that stands alone; NULL: it leads nowhere, or elsewhere. */
static const json_t *followed(const json_t *root, const json_t *schema) {
    for (int depth = 0; depth < TYPES_DEPTH; depth++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        char path[REF_MAX], *rest, *key;
        if (!ref) return schema;
        if (!has_only(schema, (const char *const[]){"$ref", NULL}) || strncmp(ref, "#/", 2) != 0 ||
            strlen(ref) >= sizeof path || strchr(ref, '~') || strchr(ref, '%'))
            return NULL;
        strcpy(path, ref + 2);
        schema = root;
        for (key = strtok_r(path, "/", &rest); key; key = strtok_r(NULL, "/", &rest))
            schema = json_object_get(schema, key);
    }
    return NULL;
}

/* Finds the types of the values that a schema allows. References can make a short schema stand for a tree of any size,
 * so each of its places costs steps. */
static fv_status types_of(fv_compile *c, const json_t *root, const json_t *schema, int depth,
                          types *out) {
    enum { STEPS = 16 }; /* about the time of as many others */
    FV_TRY(fv_compile_step(c, STEPS));
    const json_t *s = followed(root, schema);
    const json_t *type = json_object_get(s, "type"), *list = json_object_get(s, "anyOf");
    const json_t *values = json_object_get(s, "enum"), *one = json_object_get(s, "const");
    types t = {0};
    if (json_is_string(type)) note(&t, type);
    for (size_t i = 0; i < json_array_size(type); i++) note(&t, json_array_get(type, i));
    if (one && !type) note_value(&t, one);
    for (size_t i = 0; !type && i < json_array_size(values); i++)
        note_value(&t, json_array_get(values, i));
    const bool known = type || one || values;
    if (!known && (json_array_size(list) == 0 || depth > TYPES_DEPTH)) t.unknown = true;
    for (size_t i = 0; !known && !t.unknown && i < json_array_size(list); i++) {
        types x;
        FV_TRY(types_of(c, root, json_array_get(list, i), depth + 1, &x));
        t.string |= x.string;
        t.other |= x.other;
        t.unknown |= x.unknown;
    }
    *out = t;
    return FV_OK;
}

/* Whether nothing but types is asked for. */
static bool is_free(const json_t *schema) {
    const json_t *list = json_object_get(schema, "anyOf");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!has_only(json_array_get(list, i), (const char *const[]){"type", NULL})) return false;
    return has_only(schema, (const char *const[]){"type", "anyOf", NULL});
}

static fv_status any_string(fv_compile *c, fv_expr **out) {
    const char *without = end;
    return fv_expr_without(c, &without, 1, out);
}

static fv_status one_of(fv_compile *c, const json_t *values, fv_expr **out) {
    fv_exprs list = {0};
    fv_expr *e;
    fv_status st = FV_OK;
    for (size_t i = 0; st == FV_OK && i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        if (!json_is_string(v)) continue; /* it has another type than `type` */
        st = fv_expr_text(c, json_string_value(v), json_string_length(v), &e);
        if (st == FV_OK) st = fv_exprs_add(&list, e);
    }
    if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_ALT, list.item, list.n, out);
    free(list.item);
    return st;
}

/* Characters other than '<', with which the end begins: an automaton that excludes the end alone would have too many
 * states where strings are long. */
static fv_status of_length(fv_compile *c, int64_t min, int64_t max, fv_expr **out) {
    fv_expr *one;
    FV_TRY(fv_expr_set(c, &(fv_span){'<', '<'}, 1, &one));
    FV_TRY(fv_expr_not(c, one, &one));
    return fv_expr_repeat(c, one, min, max, out);
}

/* A string that an expression matches, without the end. */
static fv_status matching(fv_compile *c, const char *text, bool search, int64_t min, int64_t max,
                          fv_expr **out) {
    const fv_dfa *all, *one;
    fv_expr *e;
    FV_TRY(any_string(c, &e));
    all = e->dfa;
    FV_TRY(fv_regex_read(c, text, strlen(text), search, &e));
    FV_TRY(fv_dfa_make(c, e, &one));
    FV_TRY(fv_dfa_join(c, all, one, true, &all));
    if (min > 0 || max >= 0) {
        FV_TRY(fv_dfa_lengths(c, min, max, &one));
        FV_TRY(fv_dfa_join(c, all, one, true, &all));
    }
    return fv_expr_of_dfa(c, all, out);
}

static fv_status string_of(fv_compile *c, const json_t *schema, fv_expr **out) {
    const json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    const json_t *most = json_object_get(schema, "maxLength");
    const char *pattern = json_string_value(json_object_get(schema, "pattern"));
    const char *format = json_string_value(json_object_get(schema, "format"));
    const int64_t min = json_integer_value(json_object_get(schema, "minLength"));
    const int64_t max = json_is_integer(most) ? json_integer_value(most) : -1;
    const char *known = format ? fv_format_regex(format) : NULL;
    if (is_free(schema)) return any_string(c, out);
    if (values && has_only(schema, (const char *const[]){"type", "enum", NULL}))
        return one_of(c, values, out);
    if (one && has_only(schema, (const char *const[]){"type", "const", NULL}))
        return json_is_string(one)
                   ? fv_expr_text(c, json_string_value(one), json_string_length(one), out)
                   : fv_expr_list(c, FV_EXPR_ALT, NULL, 0, out); /* none: `type` differs */
    if (!has_only(schema, (const char *const[]){"type", "minLength", "maxLength", "pattern",
                                                "format", NULL}) ||
        (pattern && known) || min < 0 || (most && max < 0))
        return FV_FAIL(FV_EINVAL,
                       "a string may have `enum` or `const`, or `minLength`, `maxLength` and one "
                       "of `pattern` and `format` in this form, and nothing else");
    if (pattern || known) return matching(c, pattern ? pattern : known, pattern, min, max, out);
    if (min == 0 && max < 0) return any_string(c, out);
    return of_length(c, min, max, out);
}

/* A rule of a property's schema, whose references are within the whole one. */
static fv_status value_rule(fv_compile *c, const json_t *root, const json_t *schema,
                            fv_expr **out) {
    static const char *const shared[] = {"$defs", "definitions"};
    int32_t rule;
    json_t *copy = json_is_object(schema) ? json_copy((json_t *)(uintptr_t)schema) : json_object();
    if (!copy) return FV_FAIL(FV_ENOMEM, "out of memory for a schema");
    for (size_t i = 0; i < 2; i++) {
        json_t *v = json_object_get(root, shared[i]);
        if (v && !json_object_get(copy, shared[i])) json_object_set(copy, shared[i], v);
    }
    fv_status st = fv_schema_rule(c, copy, &rule);
    json_decref(copy);
    return st == FV_OK ? fv_expr_rule(c, rule, out) : st;
}

static fv_status value_of(fv_compile *c, const json_t *root, const json_t *schema, fv_expr **out) {
    const json_t *s = followed(root, schema);
    types t;
    FV_TRY(types_of(c, root, schema, 0, &t));
    if (t.unknown)
        return FV_FAIL(FV_EINVAL, "its `type` must be given: a string is written differently");
    if (!t.string) return value_rule(c, root, schema, out);
    if (!t.other) return string_of(c, s, out);
    if (is_free(s)) return any_string(c, out);
    return FV_FAIL(FV_EINVAL, "what may be a string or something else may have `type` and `anyOf` "
                              "in this form, and nothing else");
}

static fv_status parameter(fv_compile *c, const json_t *root, const char *name,
                           const json_t *schema, fv_expr **out) {
    fv_expr *open, *called, *line, *value, *close;
    FV_TRY(fv_fail_prefix(value_of(c, root, schema, &value), "parameter '%.64s'", name));
    FV_TRY(fv_expr_text(c, "<parameter=", 11, &open));
    FV_TRY(fv_expr_text(c, name, strlen(name), &called));
    FV_TRY(fv_expr_text(c, ">\n", 2, &line));
    FV_TRY(fv_expr_text(c, closes, sizeof closes - 1, &close));
    return fv_expr_seq(c, out, open, called, line, value, close, NULL);
}

static bool is_required(const json_t *schema, const char *name) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && strcmp(s, name) == 0) return true;
    }
    return false;
}

static fv_status parameters(fv_compile *c, const json_t *schema, fv_exprs *list) {
    const char *name;
    json_t *v;
    json_object_foreach(json_object_get(schema, "properties"), name, v) {
        fv_expr *e;
        if (strpbrk(name, "<>\n"))
            return FV_FAIL(FV_EINVAL, "the parameter '%.64s' cannot be written in this form", name);
        FV_TRY(parameter(c, schema, name, v, &e));
        if (!is_required(schema, name)) FV_TRY(fv_expr_repeat(c, e, 0, 1, &e));
        FV_TRY(fv_exprs_add(list, e));
    }
    return FV_OK;
}

fv_status fv_tag_xml(fv_compile *c, const json_t *schema, fv_expr **out) {
    static const char *const known[] = {"type",  "properties",           "required",    "$schema",
                                        "$defs", "additionalProperties", "definitions", NULL};
    fv_exprs list = {0};
    if (!json_is_object(schema) || !has_only(schema, known))
        return FV_FAIL(FV_EINVAL,
                       "the schema must be an object's, with `properties`, `required` and "
                       "`additionalProperties`");
    if (json_object_get(schema, "additionalProperties") &&
        !json_is_false(json_object_get(schema, "additionalProperties")))
        return FV_FAIL(FV_EINVAL,
                       "`additionalProperties` other than false cannot be written in this form");
    fv_status st = parameters(c, schema, &list);
    if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_SEQ, list.item, list.n, out);
    free(list.item);
    return st;
}
