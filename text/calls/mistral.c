/* Mistral's calls, behind [TOOL_CALLS]: a list [{"name", "arguments"}, ...], or since its tokenizer 11
 * one call NAME{...}, NAME[ARGS]{...} or NAME[CALL_ID]ID[ARGS]{...}. Any thread. */
#include <string.h>

#include "text/calls/internal.h"

enum { BEGINNING, LIST, ARGUMENTS };        /* phases */
enum { HEAD_MAX = FV_CALLS_NAME_MAX + 64 }; /* bytes before the arguments */

fv_scan_end fv_scan_mistral(fv_scan *scan, const char *s, size_t n) {
    for (; scan->phase == BEGINNING && scan->at < n; scan->at++) {
        const char c = s[scan->at];
        if (scan->from == 0 && fv_calls_is_space(c)) continue; /* `from`: bytes of the head */
        if (c == '[' && scan->from == 0) {
            scan->phase = LIST;
            break;
        }
        if (c == '{') {
            scan->phase = ARGUMENTS;
            scan->from = scan->at;
            break;
        }
        if (++scan->from > HEAD_MAX || fv_calls_is_space(c)) {
            scan->at++;
            return FV_SCAN_NONE;
        }
    }
    return scan->phase == BEGINNING ? FV_SCAN_MORE : fv_scan_json(scan, s, n);
}

/* All calls of a list are taken, or none. */
static fv_status read_list(fv_calls_parser *p, const json_t *list, bool *is) {
    const char *name;
    json_t *arguments;
    *is = json_array_size(list) > 0 && fv_calls_has_room(p, json_array_size(list));
    for (size_t i = 0; *is && i < json_array_size(list); i++) {
        *is = fv_calls_read_call(p, json_array_get(list, i), &name, &arguments);
        if (*is) json_decref(arguments);
    }
    for (size_t i = 0; *is && i < json_array_size(list); i++) {
        if (!fv_calls_read_call(p, json_array_get(list, i), &name, &arguments)) break;
        fv_status st = fv_calls_report(p, name, arguments);
        json_decref(arguments);
        FV_TRY(st);
    }
    return FV_OK;
}

/* Copies the name in front of the arguments, without marks; false: it is too long. */
static bool name_of(const char *s, size_t n, char name[FV_CALLS_NAME_MAX + 1]) {
    while (n > 0 && fv_calls_is_space(*s)) s++, n--;
    const char *end = memchr(s, '[', n);
    if (end) n = (size_t)(end - s);
    if (n > FV_CALLS_NAME_MAX) return false;
    memcpy(name, s, n);
    name[n] = '\0';
    return true;
}

fv_status fv_read_mistral(fv_calls_parser *p, const fv_scan *scan, const char *s, size_t n,
                          bool *is) {
    char name[FV_CALLS_NAME_MAX + 1];
    const size_t from = scan->phase == LIST ? 0 : scan->from;
    json_t *v = fv_calls_parse(s + from, n - from);
    fv_status st = FV_OK;
    if (scan->phase == LIST) {
        st = read_list(p, v, is);
    } else if (json_is_object(v) && name_of(s, from, name) && fv_calls_takes(p, name)) {
        *is = true;
        st = fv_calls_report(p, name, v);
    }
    json_decref(v);
    return st;
}
