/* SHA-256 over fields, each as: one byte of type, its length in 8 bytes, its bytes. */
#include "kv/cache/digest.h"

#include <openssl/evp.h>
#include <string.h>

typedef enum field_type { PURPOSE = 1, BYTES, TEXT, NUMBER, NUMBERS } field_type;

static void fail(fv_digest *d) {
    EVP_MD_CTX_free(d->ctx);
    d->ctx = NULL;
}

static void add(fv_digest *d, const void *bytes, size_t n) {
    if (d->ctx && n && EVP_DigestUpdate(d->ctx, bytes, n) != 1) fail(d);
}

static void little_endian(uint64_t v, uint8_t *out, int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(v >> (8 * i));
}

/* Adds what comes ahead of a field's bytes. */
static void head(fv_digest *d, field_type type, uint64_t n) {
    uint8_t h[9] = {(uint8_t)type};
    little_endian(n, h + 1, 8);
    add(d, h, sizeof h);
}

static void field(fv_digest *d, field_type type, const void *bytes, size_t n) {
    head(d, type, n);
    add(d, bytes, n);
}

void fv_digest_begin(fv_digest *d, const char *purpose) {
    d->ctx = EVP_MD_CTX_new();
    if (d->ctx && EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1) fail(d);
    field(d, PURPOSE, purpose, strlen(purpose));
}

void fv_digest_bytes(fv_digest *d, const void *bytes, size_t n) { field(d, BYTES, bytes, n); }

void fv_digest_text(fv_digest *d, const char *text) {
    field(d, TEXT, text, text ? strlen(text) : 0);
}

void fv_digest_number(fv_digest *d, int64_t number) {
    uint8_t bytes[8];
    little_endian((uint64_t)number, bytes, 8);
    field(d, NUMBER, bytes, sizeof bytes);
}

void fv_digest_numbers(fv_digest *d, const int32_t *number, size_t n) {
    enum { AT_ONCE = 256 };
    uint8_t bytes[4 * AT_ONCE];
    head(d, NUMBERS, n);
    for (size_t i = 0; i < n;) {
        size_t k = 0;
        for (; k < AT_ONCE && i < n; k++, i++) little_endian((uint32_t)number[i], bytes + 4 * k, 4);
        add(d, bytes, 4 * k);
    }
}

fv_status fv_digest_end(fv_digest *d, uint8_t *out) {
    uint8_t all[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    bool done = d->ctx && EVP_DigestFinal_ex(d->ctx, all, &n) == 1 && n == FV_DIGEST_BYTES;
    fail(d);
    if (!done) return FV_FAIL(FV_ENOMEM, "libcrypto cannot compute a SHA-256 digest");
    memcpy(out, all, FV_DIGEST_BYTES);
    return FV_OK;
}
