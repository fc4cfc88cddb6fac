#ifndef FOVEA_AUTH_MAC_H
#define FOVEA_AUTH_MAC_H

/* HMAC-SHA-256 (RFC 2104, FIPS 180-4; from libcrypto) over lists of fields, and derived keys.
 *
 * The input is always a list whose first field names the purpose. Each field is preceded by its
 * length (8 bytes, little endian), so no two lists have the same bytes. Any thread. */
#include "common/status.h"

enum { FV_MAC_BYTES = 32, FV_MAC_INPUT_MAX = 4096 };

typedef struct fv_key {
    uint8_t bytes[FV_MAC_BYTES];
} fv_key;

typedef struct fv_mac_field {
    const void *data; /* [bytes], borrowed; may be NULL if bytes is 0 */
    size_t bytes;
} fv_mac_field;

/* Computes the MAC of the list into out[FV_MAC_BYTES]. FV_EINVAL: the list is longer than
 * FV_MAC_INPUT_MAX. */
fv_status fv_mac(const fv_key *key, const fv_mac_field *field, int32_t n, uint8_t *out);

/* Derives a key for one purpose; it reveals nothing about `from` or other keys. */
fv_status fv_key_derive(const fv_key *from, const char *purpose, fv_key *out);

/* Compares n secret bytes in constant time. */
bool fv_mac_equal(const void *a, const void *b, size_t n);

void fv_key_wipe(fv_key *key); /* a compiler cannot remove this */

#endif
