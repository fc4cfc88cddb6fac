#ifndef FOVEA_KV_CACHE_DIGEST_H
#define FOVEA_KV_CACHE_DIGEST_H

/* DIGEST: SHA-256 over a list of fields. Each field is hashed after its type and its length, so two different
 * lists never give the same bytes to hash: "ab", "c" differs from "a", "bc", and a number from its text. Numbers
 * are hashed as little-endian bytes, so all machines agree.
 *
 * A failure of libcrypto is remembered until fv_digest_end, which every begun digest needs. Any thread; one
 * digest belongs to one thread at a time. */
#include "common/status.h"

enum { FV_DIGEST_BYTES = 32 };

typedef struct fv_digest {
    void *ctx; /* NULL after a failure */
} fv_digest;

/* Starts a digest for one `purpose`, a text that no other use of this header has. */
void fv_digest_begin(fv_digest *d, const char *purpose);

/* Adds bytes [n]; a text up to its NUL, NULL like ""; a number; n numbers of 32 bits. */
void fv_digest_bytes(fv_digest *d, const void *bytes, size_t n);
void fv_digest_text(fv_digest *d, const char *text);
void fv_digest_number(fv_digest *d, int64_t number);
void fv_digest_numbers(fv_digest *d, const int32_t *number, size_t n);

/* Writes out[FV_DIGEST_BYTES] and frees what the digest holds. FV_ENOMEM: libcrypto failed; out is untouched. */
fv_status fv_digest_end(fv_digest *d, uint8_t *out);

#endif
