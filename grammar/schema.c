/* JSON Schema -> rules: the list of conjunctions, their alternatives, and their types. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

enum { ALTERNATIVES_MAX = 2048 };

struct fv_schema_rule {
    fv_parts parts; /* owned */
    uint64_t hash;
    int32_t rule;
};

fv_status fv_parts_add(fv_schema *x, fv_parts *p, const json_t *schema, unsigned skip) {
    FV_TRY(fv_compile_step(x->c, 1 + (int64_t)p->n / 4));
    for (size_t i = 0; i < p->n; i++)
        if (p->part[i].schema == schema && p->part[i].skip == skip) return FV_OK;
    FV_TRY(fv_grow(&p->part, &p->cap, p->n + 1, sizeof *p->part));
    p->part[p->n++] = (fv_part){schema, skip};
    return FV_OK;
}

fv_status fv_schema_keep(fv_schema *x, json_t *made) {
    FV_TRY(fv_compile_step(x->c, 50));
    return made && json_array_append_new(x->made, made) == 0
               ? FV_OK
               : FV_FAIL(FV_ENOMEM, "out of memory for a schema");
}

static uint64_t hash_of(const fv_parts *p) {
    uint64_t h = p->n;
    for (size_t i = 0; i < p->n; i++) {
        h = (h ^ (uint64_t)(uintptr_t)p->part[i].schema ^ p->part[i].skip) *
            UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

static bool same_parts(const fv_parts *a, const fv_parts *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->part[i].schema != b->part[i].schema || a->part[i].skip != b->part[i].skip)
            return false;
    return true;
}

fv_status fv_schema_rule_of(fv_schema *x, const fv_parts *p, fv_expr **out) {
    const uint64_t hash = hash_of(p);
    int32_t rule;
    FV_TRY(fv_compile_step(x->c, 1 + (int64_t)x->n / 16));
    for (size_t i = 0; i < x->n; i++)
        if (x->rule[i].hash == hash && same_parts(&x->rule[i].parts, p))
            return fv_expr_rule(x->c, x->rule[i].rule, out);
    FV_TRY(fv_rule_new(x->c, "a value", 7, &rule));
    FV_TRY(fv_grow(&x->rule, &x->cap, x->n + 1, sizeof *x->rule));
    fv_parts copy = {0};
    FV_TRY(fv_grow(&copy.part, &copy.cap, p->n, sizeof *copy.part));
    if (p->n) memcpy(copy.part, p->part, p->n * sizeof *copy.part);
    copy.n = p->n;
    x->rule[x->n++] = (struct fv_schema_rule){copy, hash, rule};
    return fv_expr_rule(x->c, rule, out);
}

/* ---- alternatives ---------------------------------------------------------------------------- */

/* The conjunction with one alternative of the schema number `at`. */
static fv_status with(fv_schema *x, const fv_parts *flat, size_t at, unsigned skip,
                      const json_t *alternative, fv_parts *out) {
    for (size_t i = 0; i < flat->n; i++)
        FV_TRY(
            fv_parts_add(x, out, flat->part[i].schema, flat->part[i].skip | (i == at ? skip : 0)));
    return fv_parts_add(x, out, alternative, 0);
}

static fv_status alternatives(fv_schema *x, const fv_parts *flat, size_t at, unsigned skip,
                              const json_t *list, fv_expr **out) {
    const size_t n = json_array_size(list);
    fv_status st = FV_OK;
    if (n == 0 || n > ALTERNATIVES_MAX)
        return FV_FAIL(FV_EINVAL, "anyOf and oneOf must be lists of 1..%d schemas",
                       ALTERNATIVES_MAX);
    fv_parts *each = calloc(n, sizeof *each);
    fv_exprs list_out = {0};
    if (!each) return FV_FAIL(FV_ENOMEM, "out of memory for a schema");
    for (size_t i = 0; i < n && st == FV_OK; i++)
        st = with(x, flat, at, skip, json_array_get(list, i), &each[i]);
    if (st == FV_OK && skip == FV_SKIP_ONE_OF && n > 1) st = fv_schema_exclude(x, each, n);
    for (size_t i = 0; i < n && st == FV_OK; i++) {
        fv_expr *e;
        st = fv_schema_rule_of(x, &each[i], &e);
        if (st == FV_OK) st = fv_exprs_add(&list_out, e);
    }
    if (st == FV_OK) st = fv_expr_list(x->c, FV_EXPR_ALT, list_out.item, list_out.n, out);
    for (size_t i = 0; i < n; i++) free(each[i].part);
    free(each);
    free(list_out.item);
    return st;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A value as it is written: numbers with as few digits as lead back to them. */
static fv_status literal(fv_schema *x, const json_t *v, fv_expr **out) {
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    char *text = NULL;
    for (size_t digits = 1; digits <= 17; digits++) {
        free(text);
        text = json_dumps(v, flags | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        const bool same = back && json_equal(back, v);
        json_decref(back);
        if (same || !text) break;
    }
    if (!text) return FV_FAIL(FV_EINVAL, "a value of enum or const cannot be written");
    fv_status st = fv_compile_step(x->c, (int64_t)strlen(text));
    if (st == FV_OK) st = fv_expr_text(x->c, text, strlen(text), out);
    free(text);
    return st;
}

static fv_status literals(fv_schema *x, const json_t *list, fv_expr **out) {
    fv_exprs all = {0};
    fv_status st = FV_OK;
    for (size_t i = 0; i < json_array_size(list) && st == FV_OK; i++) {
        fv_expr *e;
        st = literal(x, json_array_get(list, i), &e);
        if (st == FV_OK) st = fv_exprs_add(&all, e);
    }
    if (st == FV_OK) st = fv_expr_list(x->c, FV_EXPR_ALT, all.item, all.n, out);
    free(all.item);
    return st;
}

static fv_status by_type(fv_schema *x, const fv_parts *flat, unsigned types, fv_expr **out) {
    fv_expr *all[6];
    size_t n = 0;
    if (types & FV_TYPE_OBJECT) FV_TRY(fv_schema_object(x, flat, &all[n++]));
    if (types & FV_TYPE_ARRAY) FV_TRY(fv_schema_array(x, flat, &all[n++]));
    if (types & FV_TYPE_STRING) FV_TRY(fv_schema_string(x, flat, &all[n++]));
    if (types & FV_TYPE_NUMBER) FV_TRY(fv_schema_number(x, flat, types, &all[n++]));
    if (types & FV_TYPE_BOOLEAN) {
        fv_expr *both[2];
        FV_TRY(fv_expr_text(x->c, "true", 4, &both[0]));
        FV_TRY(fv_expr_text(x->c, "false", 5, &both[1]));
        FV_TRY(fv_expr_list(x->c, FV_EXPR_ALT, both, 2, &all[n++]));
    }
    if (types & FV_TYPE_NULL) FV_TRY(fv_expr_text(x->c, "null", 4, &all[n++]));
    return fv_expr_list(x->c, FV_EXPR_ALT, all, n, out);
}

static fv_status flat_value(fv_schema *x, const fv_parts *flat, fv_expr **out) {
    json_t *values;
    unsigned types;
    for (size_t i = 0; i < flat->n; i++) {
        const fv_part *p = &flat->part[i];
        const json_t *any = json_object_get(p->schema, "anyOf"),
                     *one = json_object_get(p->schema, "oneOf");
        if (any && !(p->skip & FV_SKIP_ANY_OF))
            return alternatives(x, flat, i, FV_SKIP_ANY_OF, any, out);
        if (one && !(p->skip & FV_SKIP_ONE_OF))
            return alternatives(x, flat, i, FV_SKIP_ONE_OF, one, out);
    }
    if (flat->n == 0) return fv_json_value(x->c, out);
    FV_TRY(fv_schema_types(flat, &types));
    FV_TRY(fv_schema_values(x, flat, &values));
    return values ? literals(x, values, out) : by_type(x, flat, types, out);
}

static fv_status value(fv_schema *x, const fv_parts *parts, fv_expr **out) {
    fv_parts flat = {0};
    bool impossible = false;
    fv_status st = fv_schema_flatten(x, parts, &flat, &impossible);
    if (st == FV_OK) st = impossible ? fv_expr_set(x->c, NULL, 0, out) : flat_value(x, &flat, out);
    free(flat.part);
    return st;
}

/* ---- the document ---------------------------------------------------------------------------- */

static fv_status read_document(fv_schema *x, const json_t *schema, int32_t *rule) {
    fv_parts first = {0};
    fv_expr *e;
    fv_status st = fv_parts_add(x, &first, schema, 0);
    if (st == FV_OK) st = fv_schema_rule_of(x, &first, &e);
    free(first.part);
    FV_TRY(st);
    *rule = e->rule;
    while (x->done < x->n) {
        const fv_parts parts = x->rule[x->done].parts; /* the list may move */
        const int32_t number = x->rule[x->done++].rule;
        FV_TRY(value(x, &parts, &e));
        x->c->rule[number].expr = e;
    }
    return FV_OK;
}

fv_status fv_schema_rule(fv_compile *c, const json_t *schema, int32_t *rule) {
    fv_schema x = {.c = c, .root = schema, .made = json_array()};
    fv_status st = x.made ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a schema");
    if (st == FV_OK && !json_is_object(schema) && !json_is_boolean(schema))
        st = FV_FAIL(FV_EINVAL, "a schema must be an object, true or false");
    if (st == FV_OK) st = read_document(&x, schema, rule);
    for (size_t i = 0; i < x.n; i++) free(x.rule[i].parts.part);
    free(x.rule);
    json_decref(x.made);
    return st;
}

fv_status fv_schema_read(fv_compile *c, const char *text, size_t n, int32_t *rule) {
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
    json_error_t err;
    json_t *root = json_loadb(text, n, flags, &err);
    if (!root && json_error_code(&err) == json_error_numeric_overflow)
        root = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, &err);
    if (!root)
        return FV_FAIL(FV_EINVAL, "not valid JSON at line %d, column %d: %s", err.line, err.column,
                       err.text);
    fv_status st = fv_compile_step(c, (int64_t)n);
    if (st == FV_OK) st = fv_schema_rule(c, root, rule);
    json_decref(root);
    return st;
}
