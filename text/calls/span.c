/* Finds the end of a JSON value by its quotes and brackets; whether it is JSON, jansson says once it
 * is complete. Any thread. */
#include "text/calls/internal.h"

/* The value has its first bracket at scan->at, or behind space. */
fv_scan_end fv_scan_json(fv_scan *scan, const char *s, size_t n) {
    for (; scan->at < n; scan->at++) {
        const char c = s[scan->at];
        if (scan->in_string) {
            if (scan->escaped)
                scan->escaped = false;
            else if (c == '\\')
                scan->escaped = true;
            else
                scan->in_string = c != '"';
            continue;
        }
        if (scan->depth == 0 && fv_calls_is_space(c)) continue;
        if (c == '{' || c == '[') scan->depth++;
        if (scan->depth == 0) return FV_SCAN_NONE;
        if (c == '"') scan->in_string = true;
        if ((c == '}' || c == ']') && --scan->depth == 0) {
            scan->at++;
            return FV_SCAN_DONE;
        }
    }
    return FV_SCAN_MORE;
}
