/* Keeps the last failure of each thread. For any thread. */
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[1024];
static _Thread_local char where[128];
static _Thread_local int last_reason;
static _Thread_local fv_origin last_origin;

const char *fv_last_error(void) { return sentence; }

const char *fv_last_error_where(void) { return where; }

int fv_last_reason(void) { return last_reason; }

fv_status fv_fail_reason(fv_status s, int reason) {
    last_reason = reason;
    return s;
}

fv_origin fv_last_origin(void) { return last_origin; }

static const char *const origin_names[] = {
#define X(name, word) word,
    FV_ORIGINS(X)
#undef X
};

const char *fv_origin_name(fv_origin o) { return (unsigned)o < FV_N_ORIGIN ? origin_names[o] : ""; }

fv_origin fv_origin_named(const char *name, size_t n) {
    for (int o = FV_ORIGIN_UNSTATED + 1; o < FV_N_ORIGIN; o++)
        if (strlen(origin_names[o]) == n && memcmp(origin_names[o], name, n) == 0)
            return (fv_origin)o;
    return FV_ORIGIN_UNSTATED;
}

bool fv_origin_claim(fv_origin o) {
    if (last_origin != FV_ORIGIN_UNSTATED) return false;
    last_origin = o;
    return true;
}

void fv_error_take(fv_error *f, fv_status s) {
    *f = (fv_error){.status = s};
    if (s == FV_OK) return;
    f->origin = last_origin;
    snprintf(f->text, sizeof f->text, "%.*s", (int)sizeof f->text - 1, sentence);
}

fv_status fv_error_raise(const fv_error *f) {
    if (f->status == FV_OK) return FV_OK;
    return fv_fail_origin(FV_FAIL(f->status, "%s", f->text), f->origin);
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

/* Replaces control characters, also C1's in UTF-8, by '?', and white space by spaces: text from a file or a
 * caller must not control the terminal or begin a line of the log. */
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
    last_origin = FV_ORIGIN_UNSTATED;
    /* Formats into another buffer, because the arguments may point to the previous message. */
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
