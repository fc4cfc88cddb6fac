/* Objects: the members that `properties` and `required` name, in the order of the schema, then those of
 * patternProperties and additionalProperties in any order.
 *
 * Where `properties` are given and additionalProperties is not, there are no others: the schema would allow them, but
 * a model that may invent members does. A name that belongs to two patterns is not written. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

enum { PATTERNS_MAX = 32, MEMBERS_MAX = 4096 };

typedef struct pattern {
    const char *regex;
    const fv_dfa *dfa;
    fv_parts parts; /* what the values satisfy */
} pattern;

typedef struct shape {
    const char **name; /* [n] */
    size_t n, cap;
    pattern pattern[PATTERNS_MAX];
    int n_pattern;
    fv_exprs members;
    bool *need;
} shape;

/* ---- members by name -------------------------------------------------------------------------- */

static fv_status read_pattern(fv_schema *x, const char *regex, const fv_dfa **out) {
    fv_expr *e;
    FV_TRY(fv_regex_read(x->c, regex, strlen(regex), true, &e));
    return fv_dfa_make(x->c, e, out);
}

static const json_t *others_of(const json_t *s) {
    const json_t *v = json_object_get(s, "additionalProperties");
    return v ? v : json_object_get(s, "unevaluatedProperties");
}

fv_status fv_schema_member(fv_schema *x, const fv_parts *flat, const char *name, fv_parts *out,
                           bool *forbidden) {
    *forbidden = false;
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *s = flat->part[i].schema,
                     *here = json_object_get(json_object_get(s, "properties"), name);
        const json_t *others = others_of(s);
        bool found = here != NULL;
        if (json_is_false(here)) *forbidden = true;
        if (here) FV_TRY(fv_parts_add(x, out, here, 0));
        const char *regex;
        json_t *v;
        json_object_foreach(json_object_get(s, "patternProperties"), regex, v) {
            const fv_dfa *dfa;
            FV_TRY(read_pattern(x, regex, &dfa));
            if (!fv_dfa_accepts(dfa, name, strlen(name))) continue;
            found = true;
            if (json_is_false(v)) *forbidden = true;
            FV_TRY(fv_parts_add(x, out, v, 0));
        }
        if (found || !others) continue;
        if (json_is_false(others)) *forbidden = true;
        FV_TRY(fv_parts_add(x, out, others, 0));
    }
    return FV_OK;
}

bool fv_schema_requires(const fv_parts *flat, const char *name) {
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *list = json_object_get(flat->part[i].schema, "required");
        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *s = json_string_value(json_array_get(list, k));
            if (s && strcmp(s, name) == 0) return true;
        }
    }
    return false;
}

static fv_status add_name(fv_schema *x, shape *o, const char *name) {
    FV_TRY(fv_compile_step(x->c, 1 + (int64_t)o->n / 4));
    for (size_t i = 0; i < o->n; i++)
        if (strcmp(o->name[i], name) == 0) return FV_OK;
    if (o->n == MEMBERS_MAX)
        return FV_FAIL(FV_EINVAL, "an object with more than %d properties", MEMBERS_MAX);
    FV_TRY(fv_grow(&o->name, &o->cap, o->n + 1, sizeof *o->name));
    o->name[o->n++] = name;
    return FV_OK;
}

static fv_status read_names(fv_schema *x, const fv_parts *flat, shape *o) {
    const char *name;
    json_t *v;
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *s = flat->part[i].schema, *p = json_object_get(s, "properties");
        if (p && !json_is_object(p)) return FV_FAIL(FV_EINVAL, "properties must be an object");
        json_object_foreach((json_t *)(uintptr_t)p, name, v) FV_TRY(add_name(x, o, name));
    }
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *list = json_object_get(flat->part[i].schema, "required");
        if (list && !json_is_array(list))
            return FV_FAIL(FV_EINVAL, "required must be a list of names");
        for (size_t k = 0; k < json_array_size(list); k++) {
            name = json_string_value(json_array_get(list, k));
            if (!name) return FV_FAIL(FV_EINVAL, "required must be a list of names");
            FV_TRY(add_name(x, o, name));
        }
    }
    return FV_OK;
}

/* ---- further members --------------------------------------------------------------------------- */

/* The schemas that further members satisfy which belong to pattern k, or to none (-1). */
static fv_status others(fv_schema *x, const fv_parts *flat, const shape *o, int k, fv_parts *out,
                        bool *allowed) {
    *allowed = true;
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *s = flat->part[i].schema, *v = NULL;
        if (k >= 0)
            v = json_object_get(json_object_get(s, "patternProperties"), o->pattern[k].regex);
        if (!v) v = others_of(s);
        if (json_is_false(v)) *allowed = false;
        if (v) FV_TRY(fv_parts_add(x, out, v, 0));
    }
    return FV_OK;
}

static fv_status read_patterns(fv_schema *x, const fv_parts *flat, shape *o) {
    const char *regex;
    json_t *v;
    for (size_t i = 0; i < flat->n; i++)
        json_object_foreach(json_object_get(flat->part[i].schema, "patternProperties"), regex, v) {
            bool known = false;
            for (int k = 0; k < o->n_pattern; k++) known |= strcmp(o->pattern[k].regex, regex) == 0;
            if (known) continue;
            if (o->n_pattern == PATTERNS_MAX)
                return FV_FAIL(FV_EINVAL, "patternProperties: more than %d patterns", PATTERNS_MAX);
            o->pattern[o->n_pattern].regex = regex;
            FV_TRY(read_pattern(x, regex, &o->pattern[o->n_pattern++].dfa));
        }
    return FV_OK;
}

/* Whether further members may be there at all: not where there are properties and nothing is said of others. */
static bool open(const fv_parts *flat) {
    bool named = false, said = false;
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *s = flat->part[i].schema;
        named |= json_object_size(json_object_get(s, "properties")) ||
                 json_object_get(s, "patternProperties");
        said |= others_of(s) != NULL;
    }
    return said || !named;
}

/* The names that are none of the shape's, belong to pattern k and to no other, and satisfy propertyNames. */
static fv_status names_of(fv_schema *x, const fv_parts *flat, const shape *o, int k,
                          const fv_dfa **out) {
    const fv_dfa *all, *one;
    fv_exprs list = {0};
    fv_expr *e;
    fv_status st = FV_OK;
    if (k >= 0)
        all = o->pattern[k].dfa;
    else
        FV_TRY(fv_dfa_lengths(x->c, 0, -1, &all));
    for (size_t i = 0; i < o->n && st == FV_OK; i++) {
        st = fv_expr_text(x->c, o->name[i], strlen(o->name[i]), &e);
        if (st == FV_OK) st = fv_exprs_add(&list, e);
    }
    if (st == FV_OK) st = fv_expr_list(x->c, FV_EXPR_ALT, list.item, list.n, &e);
    free(list.item);
    FV_TRY(st);
    if (o->n) {
        FV_TRY(fv_dfa_make(x->c, e, &one));
        FV_TRY(fv_dfa_join(x->c, all, one, false, &all));
    }
    for (int i = 0; i < o->n_pattern; i++)
        if (i != k) FV_TRY(fv_dfa_join(x->c, all, o->pattern[i].dfa, false, &all));
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *names = json_object_get(flat->part[i].schema, "propertyNames");
        if (!names || json_is_true(names)) continue;
        fv_parts parts = {0}, inner = {0};
        bool impossible = false;
        st = fv_parts_add(x, &parts, names, 0);
        if (st == FV_OK) st = fv_schema_flatten(x, &parts, &inner, &impossible);
        for (size_t p = 0; p < inner.n && st == FV_OK; p++)
            if (json_object_get(inner.part[p].schema, "anyOf") ||
                json_object_get(inner.part[p].schema, "oneOf") ||
                json_object_get(inner.part[p].schema, "enum") ||
                json_object_get(inner.part[p].schema, "const"))
                st = FV_FAIL(FV_EINVAL,
                             "propertyNames is supported only with patterns, formats and lengths");
        if (st == FV_OK) st = fv_schema_string_dfa(x, &inner, &one);
        free(parts.part);
        free(inner.part);
        FV_TRY(st);
        if (impossible) FV_TRY(fv_dfa_lengths(x->c, 1, 0, &one));
        if (one) FV_TRY(fv_dfa_join(x->c, all, one, true, &all));
    }
    *out = all;
    return FV_OK;
}

static bool has_names_rule(const fv_parts *flat) {
    for (size_t i = 0; i < flat->n; i++)
        if (json_object_get(flat->part[i].schema, "propertyNames")) return true;
    return false;
}

static fv_status pair(fv_schema *x, fv_expr *key, fv_expr *value, fv_expr **out) {
    fv_expr *space, *colon;
    FV_TRY(fv_json_space(x->c, &space));
    FV_TRY(fv_expr_text(x->c, ":", 1, &colon));
    return fv_expr_seq(x->c, out, key, space, colon, space, value, space, NULL);
}

/* Further members of pattern k, or of none. *out NULL: there are none. */
static fv_status further(fv_schema *x, const fv_parts *flat, const shape *o, int k, fv_expr **out) {
    fv_parts parts = {0};
    fv_expr *key, *value;
    const fv_dfa *dfa = NULL;
    bool allowed;
    fv_status st = others(x, flat, o, k, &parts, &allowed);
    *out = NULL;
    if (st == FV_OK && allowed) st = fv_schema_rule_of(x, &parts, &value);
    free(parts.part);
    if (st != FV_OK || !allowed) return st;
    if (k < 0 && o->n == 0 && o->n_pattern == 0 && !has_names_rule(flat)) {
        const fv_parts none = {0};
        FV_TRY(fv_schema_string(x, &none, &key));
    } else {
        FV_TRY(names_of(x, flat, o, k, &dfa));
        if (fv_dfa_empty(dfa)) return FV_OK;
        FV_TRY(fv_expr_of_dfa(x->c, dfa, &key));
        FV_TRY(fv_expr_json(x->c, key, &key));
    }
    return pair(x, key, value, out);
}

static fv_status all_further(fv_schema *x, const fv_parts *flat, const shape *o, fv_expr **out) {
    fv_expr *list[PATTERNS_MAX + 1], *e;
    size_t n = 0;
    for (int k = 0; k < o->n_pattern; k++) {
        FV_TRY(further(x, flat, o, k, &e));
        if (e) list[n++] = e;
    }
    if (open(flat)) {
        FV_TRY(further(x, flat, o, -1, &e));
        if (e) list[n++] = e;
    }
    *out = NULL;
    return n ? fv_expr_list(x->c, FV_EXPR_ALT, list, n, out) : FV_OK;
}

/* ---- the whole --------------------------------------------------------------------------------- */

static fv_status name_fits(fv_schema *x, const fv_parts *flat, const char *name, bool *fits) {
    shape none = {0};
    const fv_dfa *dfa;
    *fits = true;
    if (!has_names_rule(flat)) return FV_OK;
    FV_TRY(names_of(x, flat, &none, -1, &dfa));
    *fits = fv_dfa_accepts(dfa, name, strlen(name));
    return FV_OK;
}

/* Adds the members with names; *possible: false if one is required and cannot be there. */
static fv_status named_members(fv_schema *x, const fv_parts *flat, shape *o, size_t *n_need,
                               bool *possible) {
    FV_TRY(FV_COMPILE_NEW(x->c, o->n + 1, o->need));
    *possible = true;
    *n_need = 0;
    for (size_t i = 0; i < o->n && *possible; i++) {
        fv_parts parts = {0};
        fv_expr *key, *value, *e;
        bool forbidden, fits;
        const bool need = fv_schema_requires(flat, o->name[i]);
        fv_status st = fv_compile_step(x->c, (int64_t)flat->n * 2);
        if (st == FV_OK) st = fv_schema_member(x, flat, o->name[i], &parts, &forbidden);
        if (st == FV_OK) st = name_fits(x, flat, o->name[i], &fits);
        if (st == FV_OK && (forbidden || !fits)) {
            free(parts.part);
            if (need) *possible = false;
            continue;
        }
        if (st == FV_OK) st = fv_schema_rule_of(x, &parts, &value);
        free(parts.part);
        if (st == FV_OK) st = fv_expr_text(x->c, o->name[i], strlen(o->name[i]), &key);
        if (st == FV_OK) st = fv_expr_json(x->c, key, &key);
        if (st == FV_OK) st = pair(x, key, value, &e);
        if (st == FV_OK) st = fv_exprs_add(&o->members, e);
        FV_TRY(st);
        o->need[o->members.n - 1] = need;
        *n_need += need;
    }
    return FV_OK;
}

/* minProperties and maxProperties: *min is 0 or 1, *max the number of further members, -1: any. More are made by
 * requiring the first optional members. */
static fv_status counts(const fv_parts *flat, shape *o, size_t n_need, bool further_ones,
                        int32_t *min, int32_t *max) {
    int64_t least, most;
    const int64_t n = (int64_t)o->members.n;
    FV_TRY(fv_schema_count(flat, "minProperties", false, &least));
    FV_TRY(fv_schema_count(flat, "maxProperties", true, &most));
    *max = -1;
    if (most >= 0 && most < n)
        return FV_FAIL(
            FV_EINVAL,
            "the keyword 'maxProperties' is supported only if it is not less than the number "
            "of properties");
    if (most >= 0) *max = (int32_t)(most - n);
    *min = least > (int64_t)n_need ? 1 : 0;
    if (least <= (int64_t)n_need + 1 && (n_need == 0 || least <= (int64_t)n_need)) return FV_OK;
    if (least > n)
        return FV_FAIL(
            FV_EINVAL,
            "the keyword 'minProperties' is supported only up to the number of properties%s",
            further_ones ? ", or 1" : "");
    for (size_t i = 0; i < o->members.n && least > (int64_t)n_need; i++)
        if (!o->need[i]) {
            o->need[i] = true;
            n_need++;
        }
    return FV_OK;
}

static fv_status object(fv_schema *x, const fv_parts *flat, shape *o, fv_expr **out) {
    fv_expr *space, *comma, *open_brace, *close, *rest, *members;
    size_t n_need;
    bool possible;
    int32_t min, max;
    FV_TRY(read_names(x, flat, o));
    FV_TRY(read_patterns(x, flat, o));
    FV_TRY(named_members(x, flat, o, &n_need, &possible));
    if (!possible) return fv_expr_set(x->c, NULL, 0, out);
    FV_TRY(all_further(x, flat, o, &rest));
    FV_TRY(counts(flat, o, n_need, rest != NULL, &min, &max));
    FV_TRY(fv_exprs_add(&o->members, rest));
    FV_TRY(fv_json_space(x->c, &space));
    FV_TRY(fv_expr_text(x->c, ",", 1, &comma));
    FV_TRY(fv_expr_seq(x->c, &comma, comma, space, NULL));
    FV_TRY(fv_expr_text(x->c, "{", 1, &open_brace));
    FV_TRY(fv_expr_text(x->c, "}", 1, &close));
    FV_TRY(fv_expr_list(x->c, FV_EXPR_MEMBERS, o->members.item, o->members.n, &members));
    members->need = o->need;
    members->between = comma;
    members->min = min;
    members->max = max;
    return fv_expr_seq(x->c, out, open_brace, space, members, close, NULL);
}

fv_status fv_schema_object(fv_schema *x, const fv_parts *flat, fv_expr **out) {
    shape o = {0};
    fv_status st = object(x, flat, &o, out);
    free(o.name);
    free(o.members.item);
    return st;
}
