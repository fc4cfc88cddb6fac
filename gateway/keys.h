#ifndef FOVEA_GATEWAY_KEYS_H
#define FOVEA_GATEWAY_KEYS_H

/* KEYS: the API keys of --api-key, for a gateway whose router does not know its callers. Only keyed
 * hashes are kept, and they are compared in constant time. Any thread. */
#include "common/status.h"

typedef struct fv_keys fv_keys; /* opaque; immutable */

/* Hashes keys [n]. FV_EINVAL: a key that is empty or not printable ASCII, which no header could
 * have. */
fv_status fv_keys_open(const char *const *keys, int n, fv_keys **out);
void fv_keys_close(fv_keys *k); /* NULL is fine */

/* authorization: the header; NULL: none. FV_EAUTH unless it is "Bearer" and one of the keys. */
fv_status fv_keys_check(const fv_keys *k, const char *authorization);

#endif
