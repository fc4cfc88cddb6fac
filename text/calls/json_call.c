/* Calls as JSON: {"name": "f", "arguments": {...}}, Llama's with "parameters". Any thread. */
#include <string.h>

#include "text/calls/internal.h"

/* Tells whether s[n], behind a '{', begins with space and one of these keys; *part: not known yet. */
static bool has_key(const char *s, size_t n, bool *part) {
    static const char *const keys[] = {"\"name\"", "\"type\"", "\"arguments\"", "\"parameters\"",
                                       "\"id\""};
    size_t at = 0;
    while (at < n && fv_calls_is_space(s[at])) at++;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const size_t all = strlen(keys[i]), some = n - at < all ? n - at : all;
        if (memcmp(s + at, keys[i], some) != 0) continue;
        if (some == all) return true;
        *part = true;
    }
    return false;
}

enum { BEGINNING, NAMED }; /* phases */
enum { SPACE_MAX = 64 };   /* before and behind the brace */

/* An object whose first key is none of a call's is given up early: it may be the whole answer. */
fv_scan_end fv_scan_json_call(fv_scan *scan, const char *s, size_t n) {
    size_t brace = 0;
    bool part = false;
    if (scan->phase == NAMED) return fv_scan_json(scan, s, n);
    while (brace < n && brace < SPACE_MAX && fv_calls_is_space(s[brace])) brace++;
    if (brace == n) return FV_SCAN_MORE;
    const size_t most = n < 2 * SPACE_MAX ? n : 2 * SPACE_MAX;
    if (s[brace] == '{' && has_key(s + brace + 1, most - brace - 1, &part)) {
        scan->phase = NAMED;
        return fv_scan_json(scan, s, n);
    }
    if (s[brace] == '{' && part && n < 2 * SPACE_MAX) return FV_SCAN_MORE;
    scan->at = s[brace] == '{' ? brace + 1 : brace;
    return FV_SCAN_NONE;
}

json_t *fv_calls_parse(const char *s, size_t n) { return json_loadb(s, n, JSON_DECODE_ANY, NULL); }

/* Arguments are an object, or the text of one; none are {}. */
static json_t *arguments_of(const json_t *call) {
    json_t *v = json_object_get(call, "arguments");
    if (!v) v = json_object_get(call, "parameters");
    if (!v || json_is_null(v)) return json_object();
    if (json_is_string(v)) return fv_calls_parse(json_string_value(v), json_string_length(v));
    return json_incref(v);
}

bool fv_calls_read_call(const fv_calls_parser *p, const json_t *call, const char **name,
                        json_t **arguments) {
    const char *is = json_string_value(json_object_get(call, "name"));
    if (!is || !fv_calls_takes(p, is)) return false;
    json_t *v = arguments_of(call);
    if (!json_is_object(v)) {
        json_decref(v);
        return false;
    }
    *name = is;
    *arguments = v;
    return true;
}

fv_status fv_read_json_call(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                            bool *is) {
    json_t *call = fv_calls_parse(s, n), *arguments;
    const char *name;
    fv_status st = FV_OK;
    (void)scan;
    *is = fv_calls_read_call(p, call, &name, &arguments);
    if (*is) {
        st = fv_calls_report(p, name, arguments);
        json_decref(arguments);
    }
    json_decref(call);
    return st;
}

fv_status fv_read_arguments(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                            bool *is) {
    const char *name = fv_calls_only_tool(p);
    json_t *arguments = fv_calls_parse(s, n);
    fv_status st = FV_OK;
    (void)scan;
    *is = name && json_is_object(arguments) && fv_calls_takes(p, name);
    if (*is) st = fv_calls_report(p, name, arguments);
    json_decref(arguments);
    return st;
}
