#ifndef FOVEA_GATEWAY_RESPONSE_REMOTE_H
#define FOVEA_GATEWAY_RESPONSE_REMOTE_H

/* RESPONSES IN REDIS: kept responses where all gateways with the same key find them, also after a restart. The store forgets
 * them by their time.
 *
 *   name    "fovea:response:" and in hex  HMAC(owner, id)
 *   value   1 byte version, 12 bytes nonce, AES-256-GCM(input, output, JSON, id before), 16 bytes tag
 *           with the owner and the id as associated data
 *
 * The store learns neither owners nor texts. A value that was made up, or moved from another name, is refused. The store
 * can only forget responses: a response has one value, so there is no older one to bring back. Loop thread. */
#include "gateway/response_store.h"
#include "redis/redis.h"

enum { FV_RESPONSE_REMOTE_BYTES = 8 << 20 }; /* of a response; larger ones are not kept */

typedef struct fv_response_remote fv_response_remote;       /* opaque */
typedef struct fv_response_remote_op fv_response_remote_op; /* opaque: one that is under way */

typedef struct fv_response_remote_options {
    uv_loop_t *loop;
    const char *url, *ca; /* as fv_redis_options has them */
    fv_key key;           /* the same of all gateways */
    int64_t deadline_ms;
} fv_response_remote_options;

fv_status fv_response_remote_open(const fv_response_remote_options *opt, fv_response_remote **out);
void fv_response_remote_close(fv_response_remote *r); /* as fv_redis_close; NULL is fine */

/* Finds the owner of a request by its tenant or its key; all gateways find the same one. */
fv_status fv_response_remote_owner(const fv_response_remote *r, const char *tenant,
                                   const char *authorization, fv_response_owner *out);

/* Called once, never from within the call. FV_OK: of a load the response, a reference that is given; otherwise NULL.
 * FV_ENOTFOUND: there is none of this owner. FV_EDATA: its value is damaged or forged. FV_EIO: the store is gone. */
typedef void (*fv_response_remote_done)(void *user, fv_status st, fv_kept_response *r);

/* Loads a response; with `chain` also those that it continues, of which at most depth_max. `store` counts its memory. */
fv_status fv_response_remote_load(fv_response_remote *r, fv_response_store *store,
                                  const fv_response_owner *owner, const char *id, bool chain,
                                  fv_response_remote_done done, void *user,
                                  fv_response_remote_op **op);
/* Keeps a complete response for ms. FV_EINVAL: it is too large. done NULL: nobody waits. */
fv_status fv_response_remote_put(fv_response_remote *r, const fv_kept_response *k, int64_t ms,
                                 fv_response_remote_done done, void *user,
                                 fv_response_remote_op **op);
fv_status fv_response_remote_delete(fv_response_remote *r, const fv_response_owner *owner,
                                    const char *id, fv_response_remote_done done, void *user,
                                    fv_response_remote_op **op);
/* `done` is not called any more. NULL is fine. */
void fv_response_remote_drop(fv_response_remote_op *op);

#endif
