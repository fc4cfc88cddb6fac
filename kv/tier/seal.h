#ifndef FOVEA_KV_TIER_SEAL_H
#define FOVEA_KV_TIER_SEAL_H

/* SEALED SEGMENT: the form of a kept segment outside memory, where others may read and write.
 *
 *   head   magic (8), rows (4), visual (4), seconds (8, IEEE 754), bytes (8), nonce (12); little endian
 *   body   `bytes` bytes, encrypted
 *   tag    16 bytes
 *
 * AES-256-GCM (NIST SP 800-38D). The key is derived for each segment from its name, and the name and the whole head are
 * associated data: a segment that was changed, cut, or put in the place of another one does not open. The name is a MAC
 * of the segment's key in its chain (kv/cache/chain.h), which covers the checkpoint, the types, the tenant and the whole
 * prompt; it reveals none of these. Any thread; a seal belongs to one thread at a time. */
#include "auth/mac.h"
#include "kv/cache/chain.h"

enum { FV_SEAL_HEAD = 44, FV_SEAL_TAG = 16, FV_SEAL_TENANT = 16 };

typedef struct fv_seal_keys {
    fv_key names, tenants, contents;
} fv_seal_keys;

/* Derives the three keys from a secret one. */
fv_status fv_seal_keys_make(const fv_key *from, fv_seal_keys *out);
void fv_seal_keys_wipe(fv_seal_keys *k);

typedef struct fv_seal_name {
    uint8_t bytes[FV_MAC_BYTES];
} fv_seal_name;

/* Names a segment; and a tenant, in FV_SEAL_TENANT bytes. */
fv_status fv_seal_name_of(const fv_seal_keys *k, const fv_chain_key *key, fv_seal_name *out);
fv_status fv_seal_tenant_of(const fv_seal_keys *k, const char *tenant, uint8_t *out);

/* A segment's contents but for its rows. */
typedef struct fv_seal_head {
    int32_t n; /* rows */
    bool visual;
    double seconds; /* that its rows took to compute */
    uint64_t bytes; /* of its rows */
} fv_seal_head;

typedef struct fv_seal {
    void *ctx; /* private */
} fv_seal;

/* Writes the head to out[FV_SEAL_HEAD]. FV_ENOMEM: libcrypto failed. After FV_OK call fv_seal_end. */
fv_status fv_seal_begin(fv_seal *s, const fv_seal_keys *k, const fv_seal_name *name,
                        const fv_seal_head *head, uint8_t *out);
/* Encrypts n bytes from `in` to `out`; the same address is fine. */
fv_status fv_seal_add(fv_seal *s, const void *in, void *out, size_t n);
/* Ends the seal and writes its tag to tag[FV_SEAL_TAG]; NULL ends it only. */
fv_status fv_seal_end(fv_seal *s, uint8_t *tag);

/* Reads head[FV_SEAL_HEAD]. FV_EDATA: it is no head, or not one of *want but for the seconds. After FV_OK call
 * fv_unseal_end. */
fv_status fv_unseal_begin(fv_seal *s, const fv_seal_keys *k, const fv_seal_name *name,
                          const uint8_t *head, const fv_seal_head *want, double *seconds);
fv_status fv_unseal_add(fv_seal *s, const void *in, void *out, size_t n);
/* FV_EDATA: what was read is not what was sealed under this name; use none of it. NULL ends only. */
fv_status fv_unseal_end(fv_seal *s, const uint8_t *tag);

#endif
