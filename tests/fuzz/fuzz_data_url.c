/* Any bytes as a data: URL, in pieces. An accepted URL gives three bytes for four characters, and
 * the same text when encoded again. */
#include <stdlib.h>
#include <string.h>

#include "gateway/api/data_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static void check(const char *text, size_t n, const ProtobufCBinaryData *b) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    expect(n % 4 == 0 && b->len > n / 4 * 3 - 3 && b->len <= n / 4 * 3);
    for (size_t i = 0; i < n; i += 4) {
        uint32_t bits = 0;
        size_t at = i / 4 * 3, left = b->len - at < 3 ? b->len - at : 3;
        for (size_t j = 0; j < 3; j++) bits = bits << 8 | (j < left ? b->data[at + j] : 0u);
        for (size_t j = 0; j < 4; j++)
            expect(text[i + j] == (j <= left ? digits[bits >> (18 - 6 * j) & 63] : '='));
    }
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
