/* Any bytes as a data: URL, in pieces. An accepted URL gives the bytes that its digits stand
 * for. */
#include <stdlib.h>
#include <string.h>

#include "gateway/api/data_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

/* Compares with a reader that takes the text as a whole, a character at a time. */
static void check(const char *text, size_t n, const ProtobufCBinaryData *b) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    size_t n_digit = 0, n_pad = 0, n_byte = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
        const char *digit = c ? strchr(digits, c) : NULL;
        if (c && strchr(" \t\r\n", c)) continue;
        n_pad += c == '=';
        if (c == '=') continue;
        expect(digit && !n_pad);
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (++n_digit % 4 == 1) continue;
        expect(n_byte < b->len &&
               b->data[n_byte++] == (uint8_t)(bits >> (6 - 2 * ((n_digit - 1) % 4))));
    }
    expect(n_byte == b->len && n_byte > 0 && n_digit % 4 != 1);
    expect(n_pad == 0 || (n_pad <= 2 && (n_digit + n_pad) % 4 == 0));
}

static fv_status read_pieces(fv_data_url *u, const uint8_t *data, size_t n,
                             ProtobufCBinaryData *out) {
    for (size_t at = 0, size = 1; at < n; at += size) {
        size = 1 + (7 * size + data[at]) % 61;
        if (size > n - at) size = n - at;
        FV_TRY(fv_data_url_feed(u, (const char *)data + at, size));
    }
    return fv_data_url_end(u, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fv_data_url u;
    ProtobufCBinaryData bytes;
    fv_data_url_begin(&u, false);
    if (read_pieces(&u, data, n, &bytes) == FV_OK) {
        const char *url = (const char *)data;
        size_t skip = (size_t)((const char *)memchr(url, ',', n) - url) + 1;
        check(url + skip, n - skip, &bytes);
        free(bytes.data);
    } else {
        expect(*fv_last_error());
    }
    fv_data_url_drop(&u);
    return 0;
}
