/* oneOf: exactly one alternative may hold. Two are known to exclude each other if their types or values do, or a member
 * that both require, or if one requires a member that the other forbids. Where each requires a member that the other
 * does not, both are narrowed to objects without the other's. What is then still open is refused: an answer might
 * satisfy two. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

enum { DEPTH_MAX = 4 };

typedef struct side {
    fv_parts flat;
    bool impossible;
    unsigned types;
    json_t *values; /* kept by the schema; NULL: not a list */
} side;

static fv_status side_open(fv_schema *x, const fv_parts *parts, side *s) {
    *s = (side){0};
    FV_TRY(fv_schema_flatten(x, parts, &s->flat, &s->impossible));
    FV_TRY(fv_schema_types(&s->flat, &s->types));
    return s->impossible ? FV_OK : fv_schema_values(x, &s->flat, &s->values);
}

static void side_close(side *s) { free(s->flat.part); }

/* Values are compared as numbers where they are numbers. */
static bool share(const json_t *a, const json_t *b) {
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++) {
            const json_t *x = json_array_get(a, i), *y = json_array_get(b, k);
            if (json_is_number(x) && json_is_number(y)
                    ? json_number_value(x) == json_number_value(y)
                    : json_equal(x, y))
                return true;
        }
    return false;
}

static unsigned type_of(const json_t *v) {
    return json_is_object(v)    ? FV_TYPE_OBJECT
           : json_is_array(v)   ? FV_TYPE_ARRAY
           : json_is_string(v)  ? FV_TYPE_STRING
           : json_is_number(v)  ? FV_TYPE_NUMBER
           : json_is_boolean(v) ? FV_TYPE_BOOLEAN
                                : FV_TYPE_NULL;
}

static bool types_overlap(const side *a, const side *b) {
    unsigned left = a->types & b->types, of = 0;
    const side *listed = a->values ? a : b->values ? b : NULL;
    for (size_t i = 0; listed && i < json_array_size(listed->values); i++)
        of |= type_of(json_array_get(listed->values, i));
    return listed ? left & of : left;
}

/* The names that a side requires, one after the other; NULL after the last. */
static const char *required_name(const side *s, size_t number) {
    for (size_t i = 0; i < s->flat.n; i++) {
        const json_t *list = json_object_get(s->flat.part[i].schema, "required");
        if (number < json_array_size(list)) return json_string_value(json_array_get(list, number));
        number -= json_array_size(list);
    }
    return NULL;
}

static fv_status exclude(fv_schema *x, const fv_parts *a, const fv_parts *b, int depth, bool *out);

/* Whether a member that `a` requires keeps an object of `a` from being one of `b`. */
static fv_status by_member(fv_schema *x, const side *a, const side *b, int depth, bool *out) {
    const char *name;
    *out = false;
    for (size_t i = 0; (name = required_name(a, i)) && !*out; i++) {
        fv_parts in_a = {0}, in_b = {0};
        bool no_a, no_b;
        fv_status st = fv_compile_step(x->c, 10);
        if (st == FV_OK) st = fv_schema_member(x, &a->flat, name, &in_a, &no_a);
        if (st == FV_OK) st = fv_schema_member(x, &b->flat, name, &in_b, &no_b);
        if (st == FV_OK && no_b)
            *out = true;
        else if (st == FV_OK && depth < DEPTH_MAX && fv_schema_requires(&b->flat, name))
            st = exclude(x, &in_a, &in_b, depth + 1, out);
        free(in_a.part);
        free(in_b.part);
        FV_TRY(st);
    }
    return FV_OK;
}

static fv_status compare(fv_schema *x, const side *a, const side *b, int depth, bool *out) {
    *out = true;
    if (a->impossible || b->impossible || !types_overlap(a, b)) return FV_OK;
    if (a->values && b->values && !share(a->values, b->values)) return FV_OK;
    *out = false;
    if ((a->types & b->types) != FV_TYPE_OBJECT) return FV_OK;
    FV_TRY(by_member(x, a, b, depth, out));
    return *out ? FV_OK : by_member(x, b, a, depth, out);
}

static fv_status exclude(fv_schema *x, const fv_parts *a, const fv_parts *b, int depth, bool *out) {
    side s = {0}, t = {0};
    fv_status st = fv_compile_step(x->c, 20);
    if (st == FV_OK) st = side_open(x, a, &s);
    if (st == FV_OK) st = side_open(x, b, &t);
    if (st == FV_OK) st = compare(x, &s, &t, depth, out);
    side_close(&s);
    side_close(&t);
    return st;
}

/* Forbids in `b` a member that only `a` requires. */
static fv_status narrow(fv_schema *x, const fv_parts *a, fv_parts *b, bool *done) {
    side s = {0}, t = {0};
    const char *name = NULL;
    *done = false;
    fv_status st = side_open(x, a, &s);
    if (st == FV_OK) st = side_open(x, b, &t);
    if (st == FV_OK && (s.types & t.types) == FV_TYPE_OBJECT)
        for (size_t i = 0; (name = required_name(&s, i)); i++)
            if (!fv_schema_requires(&t.flat, name)) break;
    if (st == FV_OK && name) {
        json_t *made = json_pack("{s:{s:b}}", "properties", name, 0);
        st = fv_schema_keep(x, made);
        if (st == FV_OK) st = fv_parts_add(x, b, made, 0);
        *done = true;
    }
    side_close(&s);
    side_close(&t);
    return st;
}

fv_status fv_schema_exclude(fv_schema *x, fv_parts *alternative, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            bool done, both = true;
            FV_TRY(exclude(x, &alternative[i], &alternative[k], 0, &done));
            if (done) continue;
            FV_TRY(narrow(x, &alternative[i], &alternative[k], &done));
            if (done) FV_TRY(narrow(x, &alternative[k], &alternative[i], &both));
            if (!done || !both)
                return FV_FAIL(FV_EINVAL,
                               "the keyword 'oneOf': alternatives %zu and %zu may hold at once; "
                               "let them require a "
                               "member with different values, or use anyOf",
                               i + 1, k + 1);
        }
    return FV_OK;
}
