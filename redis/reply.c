/* The replies to GET, SET, DEL, AUTH and SELECT in RESP, Redis's protocol:
 *
 *     +OK\r\n   :1\r\n   -ERR why\r\n   $3\r\nabc\r\n   $-1\r\n
 *
 * Nothing else is expected, so lists, whose sizes would be the server's choice, need not be read. */
#include <stdlib.h>
#include <string.h>

#include "redis/internal.h"

enum { LINE_MAX_BYTES = 1024 };

static fv_reply of_kind(fv_reply_kind kind) { return (fv_reply){.kind = kind}; }

/* $n, whose line s[line] is complete. */
static fv_reply read_value(const char *s, size_t n, size_t line, size_t value_max) {
    char number[16];
    const size_t digits = line - 3;
    if (digits == 0 || digits >= sizeof number) return of_kind(FV_REPLY_WRONG);
    memcpy(number, s + 1, digits);
    number[digits] = '\0';
    if (strcmp(number, "-1") == 0) return (fv_reply){.kind = FV_REPLY_NONE, .size = line};
    if (strspn(number, "0123456789") != digits) return of_kind(FV_REPLY_WRONG);
    const size_t bytes = strtoull(number, NULL, 10);
    if (bytes > value_max) return of_kind(FV_REPLY_BIG);
    if (n - line < bytes + 2) return of_kind(FV_REPLY_MORE);
    if (memcmp(s + line + bytes, "\r\n", 2) != 0) return of_kind(FV_REPLY_WRONG);
    return (fv_reply){FV_REPLY_VALUE, s + line, bytes, line + bytes + 2};
}

fv_reply fv_reply_read(const char *s, size_t n, size_t value_max) {
    if (n == 0) return of_kind(FV_REPLY_MORE);
    if (!strchr("+-:$_", *s) || !*s) return of_kind(FV_REPLY_WRONG);
    const size_t most = n < LINE_MAX_BYTES ? n : LINE_MAX_BYTES;
    const char *end = memmem(s, most, "\r\n", 2);
    if (!end) return of_kind(n < LINE_MAX_BYTES ? FV_REPLY_MORE : FV_REPLY_WRONG);
    const size_t line = (size_t)(end - s) + 2;
    if (*s == '$') return read_value(s, n, line, value_max);
    if (*s == '_') return (fv_reply){.kind = FV_REPLY_NONE, .size = line};
    return (fv_reply){*s == '-' ? FV_REPLY_ERROR : FV_REPLY_TEXT, s + 1, line - 3, line};
}
