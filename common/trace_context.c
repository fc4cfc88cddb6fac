/* W3C Trace Context in text form. */
#include "common/trace_context.h"

#include <string.h>

static const uint8_t none[FV_TRACE_ID_BYTES];

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* lower case only, as the standard requires */
static bool read_hex(const char *text, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool fv_trace_parse(const char *text, size_t n, fv_trace_context *out) {
    uint8_t version, flags;
    fv_trace_context t;
    *out = (fv_trace_context){0};
    if (n < FV_TRACE_TEXT || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
    if (!read_hex(text, &version, 1) || version == 0xff) return false;
    if (n > FV_TRACE_TEXT && (version == 0 || text[FV_TRACE_TEXT] != '-')) return false;
    if (!read_hex(text + 3, t.trace_id, sizeof t.trace_id) ||
        !read_hex(text + 36, t.span_id, sizeof t.span_id) || !read_hex(text + 53, &flags, 1))
        return false;
    t.sampled = flags & 1;
    if (!fv_trace_known(&t) || memcmp(t.span_id, none, sizeof t.span_id) == 0) return false;
    *out = t;
    return true;
}

bool fv_trace_known(const fv_trace_context *t) {
    return memcmp(t->trace_id, none, sizeof t->trace_id) != 0;
}

/* Returns the end of the written text, where the NUL is. */
static char *write_hex(char *out, const uint8_t *bytes, size_t n) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
    return out;
}

void fv_trace_print(const fv_trace_context *t, char out[FV_TRACE_TEXT + 1]) {
    memcpy(out, "00-", 3);
    char *at = write_hex(out + 3, t->trace_id, sizeof t->trace_id);
    *at++ = '-';
    at = write_hex(at, t->span_id, sizeof t->span_id);
    memcpy(at, t->sampled ? "-01" : "-00", 4);
}

void fv_trace_id_print(const fv_trace_context *t, char out[2 * FV_TRACE_ID_BYTES + 1]) {
    out[0] = '\0';
    if (fv_trace_known(t)) write_hex(out, t->trace_id, sizeof t->trace_id);
}
