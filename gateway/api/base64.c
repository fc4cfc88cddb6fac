#include "gateway/api/base64.h"

#include <string.h>

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

fv_status fv_base64_read(fv_base64 kind, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte) {
    const uint8_t *t = (const uint8_t *)text;
    uint8_t *out = bytes;
    int32_t value[256];
    if (n % 4 == 1 || (kind == FV_BASE64 && (n == 0 || n % 4)))
        return FV_FAIL(FV_EINVAL,
                       "base64 of %zu characters; the number must be a multiple of 4, and not 0",
                       n);
    for (int i = 0; kind == FV_BASE64 && i < 2 && text[n - 1] == '='; i++) n--;
    memset(value, -1, sizeof value);
    for (int i = 0; i < 64; i++) value[(uint8_t)digits[kind][i]] = i;
    for (size_t i = 0; i < n; i += 4) {
        size_t left = n - i < 4 ? n - i : 4;
        int32_t bits = 0;
        for (size_t j = 0; j < left; j++) {
            if (value[t[i + j]] < 0)
                return FV_FAIL(FV_EINVAL, "character %zu is not valid base64", i + j);
            bits |= value[t[i + j]] << (18 - 6 * j);
        }
        for (size_t j = 0; j + 1 < left; j++) *out++ = (uint8_t)(bits >> (16 - 8 * j));
        if (left < 4 && bits & ((1 << (32 - 8 * left)) - 1))
            return FV_FAIL(FV_EINVAL, "the base64 is truncated or corrupt at its end");
    }
    *n_byte = (size_t)(out - bytes);
    return FV_OK;
}
