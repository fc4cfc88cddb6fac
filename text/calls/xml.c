/* Qwen3-Coder's calls, whose values have no types:
 *
 *     <function=NAME>
 *     <parameter=A>
 *     VALUE
 *     </parameter>
 *     </function>
 *
 * The types are those of the tool's schema. Any thread. */
#include <stdlib.h>
#include <string.h>

#include "text/calls/internal.h"

static const char opens[] = "<function=", closes[] = "</function>";
static const char parameter[] = "<parameter=", parameter_end[] = "</parameter>";

enum { BEGINNING, INSIDE, VALUE }; /* phases */
_Static_assert(sizeof parameter == sizeof closes, "one step back serves to find both");
enum { PARAMETERS_MAX = 256, TYPES_DEPTH = 8, SCHEMAS_MAX = 256, REF_MAX = 512 };

/* Moves behind the next `mark`; false: there is none, and only bytes that may begin one are left to be looked at. */
static bool move_behind(fv_scan *scan, const char *s, size_t n, const char *mark) {
    const size_t bytes = strlen(mark);
    const char *at = memmem(s + scan->at, n - scan->at, mark, bytes);
    if (at)
        scan->at = (size_t)(at - s) + bytes;
    else if (n - scan->at >= bytes)
        scan->at = n - bytes + 1;
    return at;
}

/* Finds the end of a call. A value may have the same text, so values are passed over as they are read. */
static fv_scan_end scan_inside(fv_scan *scan, const char *s, size_t n) {
    for (;;) {
        if (scan->phase == VALUE && !move_behind(scan, s, n, parameter_end)) return FV_SCAN_MORE;
        scan->phase = INSIDE;
        const char *from = s + scan->at;
        const char *value = memmem(from, n - scan->at, parameter, sizeof parameter - 1);
        const size_t before = value ? (size_t)(value - from) : n - scan->at;
        const bool reads = value && !memmem(from, before, closes, sizeof closes - 1);
        if (!move_behind(scan, s, n, reads ? parameter : closes)) return FV_SCAN_MORE;
        if (!reads) return FV_SCAN_DONE;
        scan->phase = VALUE;
    }
}

fv_scan_end fv_scan_xml(fv_scan *scan, const char *s, size_t n) {
    const size_t n_open = sizeof opens - 1;
    if (scan->phase == BEGINNING) {
        while (scan->at < n && fv_calls_is_space(s[scan->at])) scan->at++;
        const size_t left = n - scan->at, some = left < n_open ? left : n_open;
        if (memcmp(s + scan->at, opens, some) != 0) return FV_SCAN_NONE;
        if (some < n_open) return FV_SCAN_MORE;
        scan->from = scan->at;
        scan->at += n_open;
        scan->phase = INSIDE;
    }
    return scan_inside(scan, s, n);
}

/* ---- values ------------------------------------------------------------------------------ */

/* The schema of a parameter, with the whole one that its references lead into. */
typedef struct place {
    const json_t *root, *schema; /* schema NULL: there is none */
} place;

/* Follows references such as "#/$defs/color"; NULL: one leads nowhere, or elsewhere. */
static const json_t *followed(place at) {
    for (int depth = 0; depth < TYPES_DEPTH; depth++) {
        const char *ref = json_string_value(json_object_get(at.schema, "$ref"));
        char path[REF_MAX], *rest, *key;
        if (!ref) return at.schema;
        if (strncmp(ref, "#/", 2) != 0 || strlen(ref) >= sizeof path) return NULL;
        strcpy(path, ref + 2);
        at.schema = at.root;
        for (key = strtok_r(path, "/", &rest); key; key = strtok_r(NULL, "/", &rest))
            at.schema = json_object_get(at.schema, key);
    }
    return NULL;
}

static bool is_of(const json_t *v, const char *type) {
    static const char *const names[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null"};
    return strcmp(names[json_typeof(v)], type) == 0 ||
           (json_is_integer(v) && strcmp(type, "number") == 0);
}

/* Whether a schema names a type: 1, 0, or -1: it names none. */
static int names_type(const json_t *schema, const char *type) {
    const json_t *types = json_object_get(schema, "type"), *one = json_object_get(schema, "const");
    const json_t *values = json_object_get(schema, "enum");
    const char *text = json_string_value(types);
    if (text) return strcmp(text, type) == 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *t = json_string_value(json_array_get(types, i));
        if (t && strcmp(t, type) == 0) return 1;
    }
    if (types) return 0;
    if (one && is_of(one, type)) return 1;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (is_of(json_array_get(values, i), type)) return 1;
    return one || values ? 0 : -1;
}

/* `left` bounds the schemas that are looked at: references can make a short schema stand for a large one. */
static bool allows_within(place at, const char *type, int depth, int *left) {
    static const char *const choices[] = {"anyOf", "oneOf"};
    if (--*left < 0 || !(at.schema = followed(at))) return false;
    const int named = names_type(at.schema, type);
    for (size_t c = 0; named < 0 && depth < TYPES_DEPTH && c < 2; c++) {
        const json_t *list = json_object_get(at.schema, choices[c]);
        for (size_t i = 0; i < json_array_size(list); i++)
            if (allows_within((place){at.root, json_array_get(list, i)}, type, depth + 1, left))
                return true;
    }
    return named > 0;
}

static bool allows(place at, const char *type) {
    int left = SCHEMAS_MAX;
    return at.schema && allows_within(at, type, 0, &left);
}

static bool allows_value(place at, const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_OBJECT: return allows(at, "object");
    case JSON_ARRAY: return allows(at, "array");
    case JSON_INTEGER: return allows(at, "integer") || allows(at, "number");
    case JSON_REAL: return allows(at, "number");
    case JSON_TRUE:
    case JSON_FALSE: return allows(at, "boolean");
    case JSON_NULL: return allows(at, "null");
    default: return false;
    }
}

/* Python's words, which models write too. */
static json_t *word(const char *s, size_t n) {
    if (n == 4 && memcmp(s, "True", 4) == 0) return json_true();
    if (n == 5 && memcmp(s, "False", 5) == 0) return json_false();
    return n == 4 && memcmp(s, "None", 4) == 0 ? json_null() : NULL;
}

/* A value is a string unless it is JSON of another type that the schema allows. */
static json_t *value_of(place at, const char *s, size_t n) {
    json_t *v = fv_calls_parse(s, n);
    if (!v) v = word(s, n);
    if (v && allows_value(at, v)) return v;
    json_decref(v);
    return json_stringn(s, n);
}

/* ---- a call ------------------------------------------------------------------------------ */

/* The line feeds next to the tags are theirs. */
static void trim(const char **s, size_t *n) {
    if (*n > 0 && **s == '\n') (*s)++, (*n)--;
    if (*n > 0 && (*s)[*n - 1] == '\n') (*n)--;
}

/* Copies a name up to '>', and moves *s behind that; false: there is none. */
static bool take_name(const char **s, const char *end, char name[FV_CALLS_NAME_MAX + 1]) {
    const char *stop = memchr(*s, '>', (size_t)(end - *s));
    const size_t n = stop ? (size_t)(stop - *s) : 0;
    if (!stop || n == 0 || n > FV_CALLS_NAME_MAX) return false;
    memcpy(name, *s, n);
    name[n] = '\0';
    *s = stop + 1;
    return true;
}

static const char *next_end(const char *s, const char *end) {
    return memmem(s, (size_t)(end - s), parameter_end, sizeof parameter_end - 1);
}

/* The end of a value; NULL: there is none. Texts within JSON may hold the mark, so where no string is allowed the value
 * ends where it is complete. */
static const char *end_of_value(place at, const char *s, const char *end) {
    enum { TRIES = 16 };
    const char *first = next_end(s, end), *stop = first;
    if (!at.schema || allows(at, "string")) return first;
    for (int i = 0; stop && i < TRIES; i++, stop = next_end(stop + 1, end)) {
        const char *value = s;
        size_t n = (size_t)(stop - s);
        trim(&value, &n);
        json_t *v = fv_calls_parse(value, n);
        json_decref(v);
        if (v) return stop;
    }
    return first;
}

/* Reads the parameters in [s, end); false: they are none. */
static bool read_parameters(const fv_calls_parser *p, const char *tool, const char *s,
                            const char *end, json_t *to) {
    char name[FV_CALLS_NAME_MAX + 1];
    for (int32_t i = 0; i <= PARAMETERS_MAX; i++) {
        while (s < end && fv_calls_is_space(*s)) s++;
        if (s == end) return true;
        if ((size_t)(end - s) < sizeof parameter - 1 ||
            memcmp(s, parameter, sizeof parameter - 1) != 0)
            return false;
        s += sizeof parameter - 1;
        if (!take_name(&s, end, name)) return false;
        const json_t *root = fv_calls_parameters(p, tool);
        const place at = {root, json_object_get(json_object_get(root, "properties"), name)};
        const char *stop = end_of_value(at, s, end);
        if (!stop) return false;
        const char *value = s;
        size_t n = (size_t)(stop - s);
        trim(&value, &n);
        if (json_object_set_new(to, name, value_of(at, value, n)) != 0) return false;
        s = stop + sizeof parameter_end - 1;
    }
    return false;
}

fv_status fv_read_xml(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n, bool *is) {
    char name[FV_CALLS_NAME_MAX + 1];
    const char *at = s + scan->from + sizeof opens - 1, *end = s + n - (sizeof closes - 1);
    if (!take_name(&at, end, name) || !fv_calls_takes(p, name)) return FV_OK;
    json_t *arguments = json_object();
    fv_status st = FV_OK;
    *is = arguments && read_parameters(p, name, at, end, arguments);
    if (*is) st = fv_calls_report(p, name, arguments);
    json_decref(arguments);
    return st;
}
