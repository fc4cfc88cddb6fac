/* Status codes and the per-thread sentence of the last failure. Any thread. */
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[1024];
static _Thread_local char where[128];

const char *fv_last_error(void) { return sentence; }

const char *fv_last_error_where(void) { return where; }

const char *fv_status_name(fv_status s) {
    static const char *const names[FV_N_STATUS] = {
        [FV_OK] = "OK",
        [FV_EINVAL] = "EINVAL",
        [FV_EDATA] = "EDATA",
        [FV_EUNSUPPORTED] = "EUNSUPPORTED",
        [FV_ENOTFOUND] = "ENOTFOUND",
        [FV_ENOMEM] = "ENOMEM",
        [FV_EIO] = "EIO",
        [FV_EDEVICE] = "EDEVICE",
        [FV_ECANCELLED] = "ECANCELLED",
        [FV_EBUSY] = "EBUSY",
        [FV_EDEADLINE] = "EDEADLINE",
        [FV_EAUTH] = "EAUTH",
        [FV_EFATAL] = "EFATAL",
    };
    return (unsigned)s < FV_N_STATUS ? names[s] : "UNKNOWN";
}

bool fv_status_is_callers(fv_status s) {
    return s == FV_EINVAL || s == FV_EUNSUPPORTED || s == FV_ENOTFOUND || s == FV_ECANCELLED;
}

const char *fv_status_grpc_name(fv_status s) {
    static const char *const names[FV_N_STATUS] = {
        [FV_OK] = "OK",
        [FV_EINVAL] = "INVALID_ARGUMENT",
        [FV_EDATA] = "DATA_LOSS",
        [FV_EUNSUPPORTED] = "UNIMPLEMENTED",
        [FV_ENOTFOUND] = "NOT_FOUND",
        [FV_ENOMEM] = "RESOURCE_EXHAUSTED",
        [FV_EIO] = "UNAVAILABLE",
        [FV_EDEVICE] = "INTERNAL",
        [FV_ECANCELLED] = "ABORTED",
        [FV_EBUSY] = "RESOURCE_EXHAUSTED",
        [FV_EDEADLINE] = "DEADLINE_EXCEEDED",
        [FV_EAUTH] = "UNAUTHENTICATED",
        [FV_EFATAL] = "FAILED_PRECONDITION",
    };
    return (unsigned)s < FV_N_STATUS ? names[s] : "UNKNOWN";
}

fv_status fv_fail(fv_status s, const char *file, int line, const char *fmt, ...) {
    snprintf(where, sizeof where, "%s:%d", file, line);
    /* The arguments may borrow the previous sentence, so it is formatted aside. */
    char text[sizeof sentence];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
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
    memcpy(sentence, text, sizeof sentence);
    return s;
}
