#ifndef FOVEA_AUTH_NONCES_H
#define FOVEA_AUTH_NONCES_H

/* What was used and must not be used again: random numbers of 16 bytes, each until a time. A number
 * is forgotten when its time is over, so there are as many as come in that time, and never more
 * than the set was opened for. One thread owns a set. */
#include "common/status.h"

enum { FV_NONCE_BYTES = 16 };

typedef struct fv_nonces fv_nonces; /* opaque */

fv_status fv_nonces_open(size_t most, fv_nonces **out);
void fv_nonces_close(fv_nonces *s); /* NULL is fine */

/* Takes a number, which is remembered until until_ms. FV_EAUTH: it was taken before. FV_EBUSY: the
 * set is full. Numbers must come from who draws them (their MAC was checked), as they are not mixed
 * any more. */
fv_status fv_nonces_take(fv_nonces *s, const uint8_t nonce[FV_NONCE_BYTES], uint64_t until_ms,
                         uint64_t now_ms);

size_t fv_nonces_count(const fv_nonces *s); /* including expired ones that are not removed yet */

#endif
