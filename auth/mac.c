#include "auth/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

fv_status fv_mac(const fv_key *key, const fv_mac_field *field, int32_t n, uint8_t *out) {
    uint8_t input[FV_MAC_INPUT_MAX];
    size_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        if (field[i].bytes > sizeof input || at + 8 + field[i].bytes > sizeof input)
            return FV_FAIL(FV_EINVAL, "more than %zu bytes to authenticate", sizeof input);
        for (int b = 0; b < 8; b++)
            input[at++] = (uint8_t)((uint64_t)field[i].bytes >> (8 * b) & 0xff);
        if (field[i].bytes) memcpy(input + at, field[i].data, field[i].bytes);
        at += field[i].bytes;
    }
    unsigned bytes = 0;
    bool done = HMAC(EVP_sha256(), key->bytes, sizeof key->bytes, input, at, out, &bytes) != NULL;
    OPENSSL_cleanse(input, at);
    if (!done || bytes != FV_MAC_BYTES) return FV_FAIL(FV_ENOMEM, "libcrypto cannot compute a MAC");
    return FV_OK;
}

fv_status fv_key_derive(const fv_key *from, const char *purpose, fv_key *out) {
    fv_mac_field fields[] = {{"fovea key v1", 12}, {purpose, strlen(purpose)}};
    return fv_mac(from, fields, 2, out->bytes);
}

bool fv_mac_equal(const void *a, const void *b, size_t n) { return CRYPTO_memcmp(a, b, n) == 0; }

void fv_key_wipe(fv_key *key) { OPENSSL_cleanse(key, sizeof *key); }
