/* Status codes and the per-thread record of the last failure. Any thread. */
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[1024];
static _Thread_local char where[128];
static _Thread_local int last_reason;

const char *fv_last_error(void) { return sentence; }

const char *fv_last_error_where(void) { return where; }

int fv_last_reason(void) { return last_reason; }

fv_status fv_fail_reason(fv_status s, int reason) {
    last_reason = reason;
    return s;
}

typedef struct status_row {
    const char *name, *grpc_name;
    int grpc_code;
    bool callers;
} status_row;

static const status_row *row_of(fv_status s) {
    static const status_row rows[] = {
#define X(name, code, grpc_name, callers) {#name, grpc_name, code, callers},
        FV_STATUSES(X)
#undef X
    };
    static const status_row unknown = {"UNKNOWN", "UNKNOWN", 2, false};
    return (unsigned)s < FV_N_STATUS ? &rows[s] : &unknown;
}

const char *fv_status_name(fv_status s) { return row_of(s)->name; }

bool fv_status_is_callers(fv_status s) { return row_of(s)->callers; }

int fv_status_grpc_code(fv_status s) { return row_of(s)->grpc_code; }

const char *fv_status_grpc_name(fv_status s) { return row_of(s)->grpc_name; }

/* What a file or a caller wrote must not steer the terminal or begin a line of the log: control characters (also C1's,
 * in UTF-8) become '?', white space a space. */
static void make_plain(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c == '\n' || *c == '\t' || *c == '\r')
            *c = ' ';
        else if (*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            c[0] = c[1] = '?';
    }
}

fv_status fv_fail(fv_status s, const char *file, int line, const char *fmt, ...) {
    snprintf(where, sizeof where, "%s:%d", file, line);
    last_reason = 0;
    /* The arguments may borrow the previous sentence, so it is formatted aside. */
    char text[sizeof sentence];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    make_plain(text);
    memcpy(sentence, text, sizeof sentence);
    return s;
}

fv_status fv_fail_prefix(fv_status s, const char *fmt, ...) {
    char text[sizeof sentence];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)sizeof text - n - 3, sentence);
    make_plain(text);
    memcpy(sentence, text, sizeof sentence);
    return s;
}
