/* Conjunctions: their schemas by $ref and allOf, their types, and the values of enum and const that satisfy them.
 * Keywords are checked here, each schema when it is first met: those that assert something and cannot be enforced are
 * refused. Other unknown keywords are annotations, as the specification says. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

static const char *const refused[] = {"if",
                                      "then",
                                      "else",
                                      "contains",
                                      "minContains",
                                      "maxContains",
                                      "dependencies",
                                      "dependentRequired",
                                      "dependentSchemas",
                                      "unevaluatedItems",
                                      "$dynamicRef",
                                      "$recursiveRef",
                                      "divisibleBy",
                                      "disallow",
                                      "extends"};

/* {"then": ...} without "if" asserts nothing. */
static bool asserts(const json_t *schema, const char *keyword) {
    const json_t *v = json_object_get(schema, keyword);
    if (!v) return false;
    if (strcmp(keyword, "then") == 0 || strcmp(keyword, "else") == 0) return false;
    if (strcmp(keyword, "if") == 0)
        return json_object_get(schema, "then") || json_object_get(schema, "else");
    if (strstr(keyword, "Contains")) return json_object_get(schema, "contains") != NULL;
    if (strcmp(keyword, "unevaluatedItems") == 0) return !json_is_true(v);
    return !(json_is_object(v) && json_object_size(v) == 0) || strcmp(keyword, "contains") == 0;
}

static fv_status check_keywords(const json_t *schema) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (asserts(schema, refused[i]))
            return FV_FAIL(FV_EINVAL, "the keyword '%s' is not supported", refused[i]);
    return FV_OK;
}

/* ---- $ref ------------------------------------------------------------------------------------ */

static int hex_digit(char c) {
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* Takes the next step of a JSON pointer, unescaped, into step [n_step]. */
static bool pointer_step(const char **at, char *step, size_t n_step) {
    size_t n = 0;
    const char *s = *at + 1;
    for (; *s && *s != '/' && n + 1 < n_step; s++) {
        char c = *s;
        if (c == '%' && hex_digit(s[1]) >= 0 && hex_digit(s[2]) >= 0) {
            c = (char)(hex_digit(s[1]) * 16 + hex_digit(s[2]));
            s += 2;
        } else if (c == '~' && (s[1] == '0' || s[1] == '1')) {
            c = *++s == '0' ? '~' : '/';
        }
        step[n++] = c;
    }
    step[n] = '\0';
    *at = s;
    return *s == '\0' || *s == '/';
}

/* A schema of the document by its $anchor, or by its $id; the places where they are looked for are few. */
static const json_t *named(const json_t *root, const char *key, const char *name) {
    static const char *const places[] = {"$defs", "definitions"};
    const char *k;
    json_t *v;
    for (int i = 0; i < 2; i++) json_object_foreach(json_object_get(root, places[i]), k, v) {
            const char *is = json_string_value(json_object_get(v, key));
            if (is && (strcmp(is, name) == 0 || (is[0] == '#' && strcmp(is + 1, name) == 0)))
                return v;
        }
    return NULL;
}

static fv_status resolve(const fv_schema *x, const char *ref, const json_t **out) {
    const char *id = json_string_value(json_object_get(x->root, "$id"));
    const char *fragment = strchr(ref, '#');
    char step[512];
    const json_t *at = x->root;
    if (!id) id = json_string_value(json_object_get(x->root, "id"));
    const size_t n_base = fragment ? (size_t)(fragment - ref) : strlen(ref);
    if (n_base &&
        !(id && strncmp(id, ref, n_base) == 0 && (id[n_base] == '\0' || id[n_base] == '#'))) {
        at = named(x->root, "$id", ref);
        if (!at) at = named(x->root, "id", ref);
        if (!at) return FV_FAIL(FV_EINVAL, "$ref '%.200s' leads out of the schema", ref);
        fragment = NULL;
    }
    const char *p = fragment ? fragment + 1 : "";
    if (*p && *p != '/') {
        at = named(x->root, "$anchor", p);
        if (!at) at = named(x->root, "$id", p);
        if (!at) at = named(x->root, "id", p);
        p = "";
    }
    while (at && *p) {
        if (!pointer_step(&p, step, sizeof step)) at = NULL;
        if (json_is_array(at)) {
            char *end;
            const unsigned long i = strtoul(step, &end, 10);
            at = *end || !*step ? NULL : json_array_get(at, i);
        } else {
            at = json_object_get(at, step);
        }
    }
    if (!at) return FV_FAIL(FV_EINVAL, "$ref '%.200s' leads nowhere", ref);
    *out = at;
    return FV_OK;
}

/* ---- flat conjunctions ----------------------------------------------------------------------- */

/* {"not": {"required": ["a"]}} forbids a member; {"not": {}} allows nothing; other negations are refused. */
static fv_status add_not(fv_schema *x, const json_t * not, fv_parts *work, bool *impossible) {
    const json_t *required = json_object_get(not, "required");
    if (json_is_true(not ) || (json_is_object(not ) && json_object_size(not ) == 0)) {
        *impossible = true;
        return FV_OK;
    }
    if (json_is_false(not )) return FV_OK;
    if (json_object_size(not ) != 1 || json_array_size(required) != 1 ||
        !json_is_string(json_array_get(required, 0)))
        return FV_FAIL(
            FV_EINVAL,
            "the keyword 'not' is supported only as {\"not\": {\"required\": [\"name\"]}}");
    json_t *made =
        json_pack("{s:{s:b}}", "properties", json_string_value(json_array_get(required, 0)), 0);
    FV_TRY(fv_schema_keep(x, made));
    return fv_parts_add(x, work, made, 0);
}

static fv_status expand(fv_schema *x, fv_part p, fv_parts *work, fv_parts *out, bool *impossible) {
    const json_t *s = p.schema, *v, *target;
    if (json_is_true(s)) return FV_OK;
    if (json_is_false(s)) {
        *impossible = true;
        return FV_OK;
    }
    if (!json_is_object(s)) return FV_FAIL(FV_EINVAL, "a schema must be an object, true or false");
    FV_TRY(check_keywords(s));
    FV_TRY(fv_parts_add(x, out, s, p.skip | FV_SKIP_REFS));
    if (p.skip & FV_SKIP_REFS) return FV_OK;
    if ((v = json_object_get(s, "$ref"))) {
        if (!json_is_string(v)) return FV_FAIL(FV_EINVAL, "$ref must be a text");
        FV_TRY(resolve(x, json_string_value(v), &target));
        FV_TRY(fv_parts_add(x, work, target, 0));
    }
    v = json_object_get(s, "allOf");
    if (v && json_array_size(v) == 0) return FV_FAIL(FV_EINVAL, "allOf must be a list of schemas");
    for (size_t i = 0; i < json_array_size(v); i++)
        FV_TRY(fv_parts_add(x, work, json_array_get(v, i), 0));
    return (v = json_object_get(s, "not")) ? add_not(x, v, work, impossible) : FV_OK;
}

fv_status fv_schema_flatten(fv_schema *x, const fv_parts *in, fv_parts *out, bool *impossible) {
    fv_parts work = {0};
    fv_status st = FV_OK;
    for (size_t i = 0; i < in->n && st == FV_OK; i++)
        st = fv_parts_add(x, &work, in->part[i].schema, in->part[i].skip);
    for (size_t i = 0; i < work.n && st == FV_OK; i++) /* it grows */
        st = expand(x, work.part[i], &work, out, impossible);
    free(work.part);
    return st;
}

/* ---- types ----------------------------------------------------------------------------------- */

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {{"null", FV_TYPE_NULL},       {"boolean", FV_TYPE_BOOLEAN},
                 {"integer", FV_TYPE_INTEGER}, {"number", FV_TYPE_NUMBER},
                 {"string", FV_TYPE_STRING},   {"array", FV_TYPE_ARRAY},
                 {"object", FV_TYPE_OBJECT},   {"any", FV_TYPE_ANY}};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) return names[i].types;
    return 0;
}

/* A schema without a type that has keywords of one type is meant for values of that type. */
static unsigned implied(const json_t *s) {
    static const struct {
        const char *key;
        unsigned types;
    } keys[] = {{"properties", FV_TYPE_OBJECT},
                {"required", FV_TYPE_OBJECT},
                {"additionalProperties", FV_TYPE_OBJECT},
                {"patternProperties", FV_TYPE_OBJECT},
                {"items", FV_TYPE_ARRAY},
                {"prefixItems", FV_TYPE_ARRAY},
                {"minItems", FV_TYPE_ARRAY},
                {"maxItems", FV_TYPE_ARRAY},
                {"pattern", FV_TYPE_STRING},
                {"minLength", FV_TYPE_STRING},
                {"maxLength", FV_TYPE_STRING},
                {"format", FV_TYPE_STRING},
                {"minimum", FV_TYPE_NUMBER},
                {"maximum", FV_TYPE_NUMBER}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(s, keys[i].key)) return keys[i].types;
    return 0;
}

static fv_status types_of(const json_t *type, unsigned *types) {
    unsigned all = 0;
    if (json_is_string(type)) all = type_named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        all |= type_named(json_string_value(json_array_get(type, i)));
    if (all == 0)
        return FV_FAIL(FV_EINVAL, "a schema's type must be one of JSON's, or a list of them");
    *types &= all;
    return FV_OK;
}

fv_status fv_schema_types(const fv_parts *flat, unsigned *types) {
    bool given = false;
    unsigned meant = 0;
    *types = FV_TYPE_ANY;
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *type = json_object_get(flat->part[i].schema, "type");
        if (type) FV_TRY(types_of(type, types));
        given |= type != NULL;
        meant |= implied(flat->part[i].schema);
    }
    if (!given && meant) *types = meant;
    return FV_OK;
}

static unsigned type_of(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_OBJECT: return FV_TYPE_OBJECT;
    case JSON_ARRAY: return FV_TYPE_ARRAY;
    case JSON_STRING: return FV_TYPE_STRING;
    case JSON_INTEGER: return FV_TYPE_INTEGER;
    case JSON_REAL:
        return floor(json_real_value(v)) == json_real_value(v) ? FV_TYPE_INTEGER : FV_TYPE_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return FV_TYPE_BOOLEAN;
    case JSON_NULL: break;
    }
    return FV_TYPE_NULL;
}

/* ---- enum and const -------------------------------------------------------------------------- */

static bool equal(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool lists(const json_t *list, const json_t *value) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (equal(json_array_get(list, i), value)) return true;
    return false;
}

/* Whether the schemas that say more than a type allow a value. Those of members and elements are not looked into. */
static fv_status allows(fv_schema *x, const fv_parts *flat, unsigned types, const fv_dfa *strings,
                        const json_t *v, bool *out) {
    *out = (type_of(v) & types) != 0;
    for (size_t i = 0; i < flat->n && *out; i++) {
        const json_t *s = flat->part[i].schema, *list = json_object_get(s, "enum"),
                     *one = json_object_get(s, "const");
        FV_TRY(fv_compile_step(x->c, 1 + (int64_t)json_array_size(list)));
        if ((list && !lists(list, v)) || (one && !equal(one, v))) *out = false;
    }
    if (*out && json_is_number(v)) FV_TRY(fv_schema_number_fits(flat, v, out));
    if (*out && json_is_string(v) && strings)
        *out = fv_dfa_accepts(strings, json_string_value(v), json_string_length(v));
    return FV_OK;
}

fv_status fv_schema_refuse(const fv_parts *flat, const char *keyword) {
    for (size_t i = 0; i < flat->n; i++)
        if (json_object_get(flat->part[i].schema, keyword))
            return FV_FAIL(FV_EINVAL, "the keyword '%s' is not supported beside enum or const",
                           keyword);
    return FV_OK;
}

static fv_status check_beside(const fv_parts *flat, unsigned types) {
    static const char *const of_objects[] = {"properties",    "required",      "patternProperties",
                                             "minProperties", "maxProperties", "propertyNames"};
    static const char *const of_arrays[] = {"items", "prefixItems", "minItems", "maxItems",
                                            "uniqueItems"};
    for (size_t i = 0; types & FV_TYPE_OBJECT && i < sizeof of_objects / sizeof *of_objects; i++)
        FV_TRY(fv_schema_refuse(flat, of_objects[i]));
    for (size_t i = 0; types & FV_TYPE_ARRAY && i < sizeof of_arrays / sizeof *of_arrays; i++)
        FV_TRY(fv_schema_refuse(flat, of_arrays[i]));
    return FV_OK;
}

/* The first list of values; a const is a list of one. */
static fv_status first_list(fv_schema *x, const fv_parts *flat, const json_t **out) {
    *out = NULL;
    for (size_t i = 0; i < flat->n && !*out; i++) {
        const json_t *s = flat->part[i].schema, *list = json_object_get(s, "enum");
        json_t *one = json_object_get(s, "const");
        if (list && !json_is_array(list)) return FV_FAIL(FV_EINVAL, "enum must be a list");
        *out = list;
        if (!one || list) continue;
        json_t *made = json_pack("[O]", one);
        FV_TRY(fv_schema_keep(x, made));
        *out = made;
    }
    return FV_OK;
}

fv_status fv_schema_values(fv_schema *x, const fv_parts *flat, json_t **list) {
    const json_t *all;
    const fv_dfa *strings = NULL;
    unsigned types, used = 0;
    *list = NULL;
    FV_TRY(first_list(x, flat, &all));
    if (!all) return FV_OK;
    FV_TRY(fv_schema_types(flat, &types));
    for (size_t i = 0; i < json_array_size(all); i++) used |= type_of(json_array_get(all, i));
    FV_TRY(check_beside(flat, used & types));
    if (used & types & FV_TYPE_STRING) FV_TRY(fv_schema_string_dfa(x, flat, &strings));
    json_t *made = json_array();
    FV_TRY(fv_schema_keep(x, made));
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *v = json_array_get(all, i);
        bool good;
        FV_TRY(allows(x, flat, types, strings, v, &good));
        if (good && json_array_append(made, v) != 0)
            return FV_FAIL(FV_ENOMEM, "out of memory for a schema");
    }
    *list = made;
    return FV_OK;
}

fv_status fv_schema_count(const fv_parts *flat, const char *key, bool most, int64_t *out) {
    *out = -1;
    for (size_t i = 0; i < flat->n; i++) {
        const json_t *v = json_object_get(flat->part[i].schema, key);
        if (!v) continue;
        const double d = json_number_value(v);
        if (!json_is_number(v) || d < 0 || d != floor(d))
            return FV_FAIL(FV_EINVAL, "%s must be a whole number, 0 or more", key);
        const int64_t n = d > INT32_MAX ? INT32_MAX : (int64_t)d;
        if (*out < 0 || (most ? n < *out : n > *out)) *out = n;
    }
    return FV_OK;
}
