#include "gateway/keys.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "auth/mac.h"
#include "common/random.h"

struct fv_keys {
    fv_key secret; /* for hashing */
    int n;
    uint8_t hash[][FV_MAC_BYTES]; /* [n] */
};

static fv_status hash(const fv_keys *k, const char *key, uint8_t *out) {
    const fv_mac_field field = {key, strlen(key)};
    return fv_mac(&k->secret, &field, 1, out);
}

static fv_status check_key(const char *key) {
    if (!*key) return FV_FAIL(FV_EINVAL, "--api-key: the key is empty");
    for (; *key; key++)
        if (*key <= ' ' || *key > '~')
            return FV_FAIL(FV_EINVAL, "--api-key: a key must be printable ASCII without spaces");
    return FV_OK;
}

fv_status fv_keys_open(const char *const *keys, int n, fv_keys **out) {
    for (int i = 0; i < n; i++) FV_TRY(check_key(keys[i]));
    fv_keys *k = calloc(1, sizeof *k + (size_t)n * sizeof *k->hash);
    if (!k) return FV_FAIL(FV_ENOMEM, "out of memory for API keys");
    k->n = n;
    fv_status st = fv_random_bytes(k->secret.bytes, sizeof k->secret.bytes);
    for (int i = 0; i < n && st == FV_OK; i++) st = hash(k, keys[i], k->hash[i]);
    if (st == FV_OK)
        *out = k;
    else
        free(k);
    return st;
}

void fv_keys_close(fv_keys *k) {
    if (k) OPENSSL_cleanse(&k->secret, sizeof k->secret);
    free(k);
}

/* Compares with every key, so that the time tells nothing about which one is nearest. */
static bool has(const fv_keys *k, const char *key) {
    uint8_t shown[FV_MAC_BYTES];
    unsigned found = 0;
    if (hash(k, key, shown) != FV_OK) return false;
    for (int i = 0; i < k->n; i++) found |= CRYPTO_memcmp(shown, k->hash[i], sizeof shown) == 0;
    return found != 0;
}

fv_status fv_keys_check(const fv_keys *k, const char *authorization) {
    static const char scheme[] = "Bearer ";
    enum { N_SCHEME = sizeof scheme - 1 };
    if (!authorization)
        return FV_FAIL(FV_EAUTH, "an API key is needed: send it as Authorization: Bearer KEY");
    if (strncasecmp(authorization, scheme, N_SCHEME) != 0)
        return FV_FAIL(FV_EAUTH, "the header Authorization must be: Bearer KEY");
    return has(k, authorization + N_SCHEME) ? FV_OK : FV_FAIL(FV_EAUTH, "unknown API key");
}
