#ifndef FOVEA_AUTH_NONCES_H
#define FOVEA_AUTH_NONCES_H

/* Used nonces: random numbers of 16 bytes that must not be used again before a time. Expired nonces
 * are forgotten, so the set holds those of a limited time, and never more than it was opened for.
 * One thread owns a set. */
#include "common/status.h"

enum { FV_NONCE_BYTES = 16 };

typedef struct fv_nonces fv_nonces; /* opaque */

fv_status fv_nonces_open(size_t most, fv_nonces **out);
void fv_nonces_close(fv_nonces *s); /* NULL is fine */

/* Records a nonce until until_ms. FV_EAUTH: it was used before. FV_EBUSY: the set is full. Nonces
 * are not hashed again, so they must be random: check the MAC of their origin first. */
fv_status fv_nonces_take(fv_nonces *s, const uint8_t nonce[FV_NONCE_BYTES], uint64_t until_ms,
                         uint64_t now_ms);

size_t fv_nonces_count(const fv_nonces *s); /* including expired ones that are not removed yet */

#endif
