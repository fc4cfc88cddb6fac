#ifndef FOVEA_KV_TIER_STORE_H
#define FOVEA_KV_TIER_STORE_H

/* STORE: segments of prompts in a Redis server (redis/redis.h), shared by all workers of a fleet that have one secret.
 *
 *   fovea:kv:NAME      the sealed head
 *   fovea:kv:NAME:I    part I of the sealed rows and their tag, at most FV_KV_STORE_PART bytes each
 *
 * NAME is a MAC of the segment's key (seal.h). The head is written last, so a segment that has one is whole until the
 * server gives up parts of it. How long segments stay is the server's affair (maxmemory, allkeys-lru); each is forgotten
 * FV_KV_STORE_DAYS after it was written.
 *
 * Reads and writes have a connection each. A server that is slow or gone costs a call its deadline, and then nothing for
 * a while. */
#include "kv/tier/tier.h"

enum { FV_KV_STORE_PART = 4 << 20, FV_KV_STORE_DAYS = 7 };

typedef struct fv_kv_store_options {
    const char *url;      /* as of fv_redis_options */
    const char *ca;       /* likewise; may be NULL */
    int64_t deadline_ms;  /* of a read of a segment's part, or of a write */
    const fv_key *secret; /* of the fleet */
} fv_kv_store_options;

/* Checks the options, without connecting. Errors as of fv_redis_open. */
fv_status fv_kv_store_open(const fv_kv_store_options *opt, fv_kv_tier **out);

#endif
