/* Strict base64: padded, no white space, no bits left over. */
#include "gateway/api/data_url.h"

#include <string.h>
#include <strings.h>

static int digit(unsigned char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static fv_status decode(const char *text, size_t n, fv_arena *arena, ProtobufCBinaryData *out) {
    uint8_t *bytes;
    size_t n_out = 0, pad = 0;
    if (n == 0 || n % 4)
        return FV_FAIL(FV_EINVAL,
                       "base64 of %zu characters; the number must be a multiple of 4, and not 0",
                       n);
    while (pad < 2 && text[n - 1 - pad] == '=') pad++;
    FV_TRY(FV_ARENA_NEW(arena, n / 4 * 3, bytes));
    for (size_t i = 0; i < n; i += 4) {
        size_t keep = i + 4 == n ? 4 - pad : 4;
        uint32_t bits = 0;
        for (size_t j = 0; j < 4; j++) {
            int d = j < keep ? digit((unsigned char)text[i + j]) : 0;
            if (d < 0) return FV_FAIL(FV_EINVAL, "character %zu is not valid base64", i + j);
            bits = bits << 6 | (uint32_t)d;
        }
        for (size_t j = 0; j + 1 < keep; j++) bytes[n_out++] = (uint8_t)(bits >> (16 - 8 * j));
        if (keep < 4 && bits & ((1u << 8 * (4 - keep)) - 1))
            return FV_FAIL(FV_EINVAL, "the base64 is truncated or corrupt at its end");
    }
    *out = (ProtobufCBinaryData){n_out, bytes};
    return FV_OK;
}

static bool has_type(const char *type, bool video) {
    if (!video) return strncasecmp(type, "image/", 6) == 0;
    return strncasecmp(type, "video/", 6) == 0 || strncasecmp(type, "image/gif;", 10) == 0;
}

fv_status fv_data_url_read(const char *url, size_t n, bool video, fv_arena *arena,
                           ProtobufCBinaryData *out) {
    const char *what = video ? "a video" : "an image", *type = video ? "video/mp4" : "image/png";
    static const char scheme[] = "data:", mark[] = ";base64";
    size_t skip = sizeof scheme - 1, n_mark = sizeof mark - 1;
    if (n < skip || strncasecmp(url, scheme, skip) != 0)
        return FV_FAIL(FV_EINVAL,
                       "%s must be a data: URL (data:%s;base64,...), or an http(s) URL where the "
                       "server allows its host",
                       what, type);
    const char *comma = memchr(url, ',', n);
    size_t head = comma ? (size_t)(comma - url) : 0;
    if (head < skip + n_mark || strncasecmp(comma - n_mark, mark, n_mark) != 0)
        return FV_FAIL(FV_EINVAL, "a data: URL must be base64: data:%s;base64,...", type);
    if (!has_type(url + skip, video))
        return FV_FAIL(FV_EINVAL, "the data: URL must have the type of %s: data:%s;base64,...",
                       what, type);
    return decode(comma + 1, n - head - 1, arena, out);
}
