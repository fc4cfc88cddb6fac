#include "gateway/api/base64.h"

#include <stdbool.h>
#include <string.h>

enum { BLANK = 64 };

static const char *const digits[] = {
    [FV_BASE64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    [FV_BASE64_URL] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"};

size_t fv_base64_write(fv_base64 kind, const uint8_t *bytes, size_t n, char *text) {
    char *at = text;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++) bits = bits << 8 | (j < left ? bytes[i + j] : 0u);
        for (size_t j = 0; j <= left; j++) *at++ = digits[kind][bits >> (18 - 6 * j) & 63];
        for (size_t j = left; kind == FV_BASE64 && j < 3; j++) *at++ = '=';
    }
    return (size_t)(at - text);
}

void fv_base64_begin(fv_base64_reader *r, fv_base64 kind) {
    *r = (fv_base64_reader){.kind = kind};
    memset(r->value, 0xFF, sizeof r->value);
    for (int i = 0; i < 64; i++) r->value[(uint8_t)digits[kind][i]] = (uint8_t)i;
    if (kind == FV_BASE64_URL) return;
    r->value['-'] = 62;
    r->value['_'] = 63;
    for (const char *c = " \t\r\n"; *c; c++) r->value[(uint8_t)*c] = BLANK;
}

/* Decodes whole groups of four up to the first other character. Returns how many characters were
 * read. */
static size_t read_groups(const fv_base64_reader *r, const uint8_t *text, size_t n,
                          uint8_t *bytes) {
    const uint8_t *v = r->value;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const uint32_t a = v[text[i]], b = v[text[i + 1]], c = v[text[i + 2]], d = v[text[i + 3]];
        if ((a | b | c | d) > 63) break;
        const uint32_t bits = a << 18 | b << 12 | c << 6 | d;
        *bytes++ = (uint8_t)(bits >> 16);
        *bytes++ = (uint8_t)(bits >> 8);
        *bytes++ = (uint8_t)bits;
    }
    return i;
}

/* Decodes the incomplete last group: two characters are one byte, three are two. */
static fv_status end_group(fv_base64_reader *r, uint8_t *bytes, size_t *n_byte) {
    const uint8_t n = r->n_group;
    if (n == 2) *bytes = (uint8_t)(r->bits >> 4);
    if (n == 3) {
        bytes[0] = (uint8_t)(r->bits >> 10);
        bytes[1] = (uint8_t)(r->bits >> 2);
    }
    if (n == 1 || r->bits & (n == 3 ? 3u : n == 2 ? 15u : 0))
        return FV_FAIL(FV_EINVAL, "the base64 is truncated or corrupt at its end");
    *n_byte = n ? n - 1u : 0;
    r->n_group = 0;
    return FV_OK;
}

/* Reads one character; *n_byte is 3 where it completes a group, else 0. */
static fv_status read_character(fv_base64_reader *r, uint8_t c, uint8_t *bytes, size_t *n_byte) {
    const bool pads = r->kind == FV_BASE64 && c == '=' && r->n % 4 >= 2;
    *n_byte = 0;
    if (r->value[c] == BLANK) return FV_OK;
    if (!pads && (r->n_pad > 0 || r->value[c] > 63))
        return FV_FAIL(FV_EINVAL, "character %zu is not valid base64", r->n);
    r->n++;
    r->n_pad = (uint8_t)(r->n_pad + pads);
    if (pads) return FV_OK;
    r->bits = r->bits << 6 | r->value[c];
    if (++r->n_group < 4) return FV_OK;
    for (int i = 0; i < 3; i++) bytes[i] = (uint8_t)(r->bits >> (16 - 8 * i));
    r->bits = r->n_group = 0;
    *n_byte = 3;
    return FV_OK;
}

fv_status fv_base64_feed(fv_base64_reader *r, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte) {
    const uint8_t *t = (const uint8_t *)text;
    size_t out = 0, more;
    for (size_t i = 0; i < n;) {
        const size_t whole = r->n_group || r->n_pad ? 0 : read_groups(r, t + i, n - i, bytes + out);
        r->n += whole;
        i += whole;
        out += whole / 4 * 3;
        if (i == n) break;
        FV_TRY(read_character(r, t[i++], bytes + out, &more));
        out += more;
    }
    *n_byte = out;
    return FV_OK;
}

fv_status fv_base64_end(fv_base64_reader *r, uint8_t *bytes, size_t *n_byte) {
    if (r->kind == FV_BASE64 && r->n == 0) return FV_FAIL(FV_EINVAL, "the base64 is empty");
    if (r->n_pad && r->n % 4)
        return FV_FAIL(FV_EINVAL, "base64 of %zu characters with their padding: 4 go together",
                       r->n);
    return end_group(r, bytes, n_byte);
}

fv_status fv_base64_read(fv_base64 kind, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte) {
    fv_base64_reader r;
    size_t first, last;
    fv_base64_begin(&r, kind);
    FV_TRY(fv_base64_feed(&r, text, n, bytes, &first));
    FV_TRY(fv_base64_end(&r, bytes + first, &last));
    *n_byte = first + last;
    return FV_OK;
}
