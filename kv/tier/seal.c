/* AES-256-GCM by libcrypto, in pieces. */
#include "kv/tier/seal.h"

#include <math.h>
#include <openssl/evp.h>
#include <string.h>

#include "common/random.h"

enum { NONCE = 12, PIECE_MAX = 1 << 30 /* libcrypto counts in int */ };
static const uint8_t magic[8] = "fovkv\0\1";

/* ---- names ------------------------------------------------------------------------------ */

fv_status fv_seal_keys_make(const fv_key *from, fv_seal_keys *out) {
    FV_TRY(fv_key_derive(from, "fovea kv tier: names", &out->names));
    FV_TRY(fv_key_derive(from, "fovea kv tier: tenants", &out->tenants));
    return fv_key_derive(from, "fovea kv tier: contents", &out->contents);
}

void fv_seal_keys_wipe(fv_seal_keys *k) {
    fv_key_wipe(&k->names);
    fv_key_wipe(&k->tenants);
    fv_key_wipe(&k->contents);
}

fv_status fv_seal_name_of(const fv_seal_keys *k, const fv_chain_key *key, fv_seal_name *out) {
    fv_mac_field field[] = {{"segment", 7}, {key->bytes, sizeof key->bytes}};
    return fv_mac(&k->names, field, 2, out->bytes);
}

fv_status fv_seal_tenant_of(const fv_seal_keys *k, const char *tenant, uint8_t *out) {
    uint8_t mac[FV_MAC_BYTES];
    fv_mac_field field[] = {{"tenant", 6}, {tenant, strlen(tenant)}};
    FV_TRY(fv_mac(&k->tenants, field, 2, mac));
    memcpy(out, mac, FV_SEAL_TENANT);
    return FV_OK;
}

/* ---- the head ----------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *at, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(v >> (8 * i));
    return at;
}

static uint64_t take(const uint8_t **at, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t) * (*at)++ << (8 * i);
    return v;
}

static void write_head(const fv_seal_head *h, const uint8_t *nonce, uint8_t *out) {
    uint64_t seconds;
    memcpy(&seconds, &h->seconds, sizeof seconds);
    memcpy(out, magic, sizeof magic);
    uint8_t *at = put(out + sizeof magic, (uint64_t)h->n, 4);
    at = put(at, h->visual, 4);
    at = put(at, seconds, 8);
    at = put(at, h->bytes, 8);
    memcpy(at, nonce, NONCE);
}

static fv_status read_head(const uint8_t *head, const fv_seal_head *want, double *seconds) {
    const uint8_t *at = head + sizeof magic;
    uint64_t n = take(&at, 4), visual = take(&at, 4), s = take(&at, 8), bytes = take(&at, 8);
    memcpy(seconds, &s, sizeof s);
    bool same = memcmp(head, magic, sizeof magic) == 0 && n == (uint64_t)want->n &&
                visual == want->visual && bytes == want->bytes;
    if (same && isfinite(*seconds) && *seconds >= 0) return FV_OK;
    return FV_FAIL(FV_EDATA, "a kept segment has another head than its key promises");
}

/* ---- contents ----------------------------------------------------------------------------- */

static fv_status fail(fv_seal *s) {
    EVP_CIPHER_CTX_free(s->ctx);
    s->ctx = NULL;
    return FV_FAIL(FV_ENOMEM, "libcrypto cannot seal a kept segment");
}

static fv_status begin(fv_seal *s, const fv_seal_keys *k, const fv_seal_name *name,
                       const uint8_t *head, bool encrypt) {
    fv_key key;
    fv_mac_field field[] = {{"contents", 8}, {name->bytes, sizeof name->bytes}};
    int n;
    FV_TRY(fv_mac(&k->contents, field, 2, key.bytes));
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    s->ctx = ctx;
    bool good = ctx &&
                EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key.bytes,
                                  head + FV_SEAL_HEAD - NONCE, encrypt) == 1 &&
                EVP_CipherUpdate(ctx, NULL, &n, name->bytes, sizeof name->bytes) == 1 &&
                EVP_CipherUpdate(ctx, NULL, &n, head, FV_SEAL_HEAD) == 1;
    fv_key_wipe(&key);
    return good ? FV_OK : fail(s);
}

/* GCM gives as many bytes as it takes, whether it encrypts or decrypts. */
static fv_status add(fv_seal *s, const void *in, void *out, size_t n) {
    for (size_t at = 0; at < n;) {
        int piece = n - at < PIECE_MAX ? (int)(n - at) : PIECE_MAX, done;
        if (EVP_CipherUpdate(s->ctx, (uint8_t *)out + at, &done, (const uint8_t *)in + at, piece) !=
                1 ||
            done != piece)
            return FV_FAIL(FV_ENOMEM, "libcrypto cannot seal a kept segment");
        at += (size_t)piece;
    }
    return FV_OK;
}

fv_status fv_seal_begin(fv_seal *s, const fv_seal_keys *k, const fv_seal_name *name,
                        const fv_seal_head *head, uint8_t *out) {
    uint8_t nonce[NONCE];
    FV_TRY(fv_random_bytes(nonce, sizeof nonce));
    write_head(head, nonce, out);
    return begin(s, k, name, out, true);
}

fv_status fv_seal_add(fv_seal *s, const void *in, void *out, size_t n) {
    return add(s, in, out, n);
}

fv_status fv_seal_end(fv_seal *s, uint8_t *tag) {
    uint8_t rest[16];
    int n;
    bool good = !tag || (EVP_CipherFinal_ex(s->ctx, rest, &n) == 1 &&
                         EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_GCM_GET_TAG, FV_SEAL_TAG, tag) == 1);
    if (!good) return fail(s);
    EVP_CIPHER_CTX_free(s->ctx);
    s->ctx = NULL;
    return FV_OK;
}

fv_status fv_unseal_begin(fv_seal *s, const fv_seal_keys *k, const fv_seal_name *name,
                          const uint8_t *head, const fv_seal_head *want, double *seconds) {
    FV_TRY(read_head(head, want, seconds));
    return begin(s, k, name, head, false);
}

fv_status fv_unseal_add(fv_seal *s, const void *in, void *out, size_t n) {
    return add(s, in, out, n);
}

fv_status fv_unseal_end(fv_seal *s, const uint8_t *tag) {
    uint8_t copy[FV_SEAL_TAG], rest[16];
    int n;
    bool same = true;
    if (tag) {
        memcpy(copy, tag, sizeof copy);
        same = EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_GCM_SET_TAG, FV_SEAL_TAG, copy) == 1 &&
               EVP_CipherFinal_ex(s->ctx, rest, &n) == 1;
    }
    EVP_CIPHER_CTX_free(s->ctx);
    s->ctx = NULL;
    if (same) return FV_OK;
    return FV_FAIL(FV_EDATA, "a kept segment is damaged, or was sealed under another name or key");
}
