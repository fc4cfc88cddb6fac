#ifndef FOVEA_REDIS_REDIS_H
#define FOVEA_REDIS_REDIS_H

/* REDIS: values in a Redis server (or Valkey, KeyDB), by names of bytes, each with the time after which the server
 * forgets it.
 *
 *   fv_redis_get, _set, _delete --> queue --> one connection, opened when it is needed, over TLS where the URL says so
 *   done(user, ...)             <-- replies, in order
 *
 * The server is a cache that others may have filled: its values are bounded and otherwise taken as they are, and whoever
 * uses this layer must authenticate them. A server that is slow or gone costs each operation at most deadline_ms; after
 * that, operations fail at once for a while (100 ms, doubling up to 5 s), before one tries the connection again.
 *
 * No call blocks. Loop thread only. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"

enum {
    FV_REDIS_NAME_MAX = 512,
    FV_REDIS_WAITING_MAX = 1024,           /* operations */
    FV_REDIS_WAITING_BYTES_MAX = 64 << 20, /* of their names and values */
};

typedef struct fv_redis fv_redis;       /* opaque */
typedef struct fv_redis_op fv_redis_op; /* opaque: an operation that is not over */

typedef struct fv_redis_options {
    uv_loop_t *loop;
    /* redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DB]; escapes %XX in user and password */
    const char *url;
    const char *ca; /* rediss: a file of certificates that sign the server's; NULL: the system's */
    int64_t deadline_ms; /* of each operation */
    size_t value_max;    /* bytes of a value; larger ones are refused, also from the server */
} fv_redis_options;

/* Checks the options, without connecting. FV_EINVAL: the URL, or `ca` for a connection without TLS; FV_EDATA: the file of
 * certificates. */
fv_status fv_redis_open(const fv_redis_options *opt, fv_redis **out);
/* Drops all operations. The memory is freed by the loop, which must run once more. NULL is fine. */
void fv_redis_close(fv_redis *r);

/* Called once, never from within the call that began the operation. FV_OK: value [n] of a get, borrowed; NULL of others.
 * FV_ENOTFOUND: there is no such name (get). FV_EIO: the server is gone, slow, or refuses; fv_last_error says which.
 * FV_EDATA: the value has more than value_max bytes. */
typedef void (*fv_redis_done)(void *user, fv_status st, const void *value, size_t n);

/* Each begins an operation and gives *op, which is valid until `done`, or fails at once: FV_EIO: the server was gone a
 * moment ago; FV_EBUSY: too many operations or bytes wait; FV_EINVAL: the name or the value is too long. Everything is copied.
 * ms: the value's time, more than 0. */
fv_status fv_redis_get(fv_redis *r, const void *name, size_t n_name, fv_redis_done done, void *user,
                       fv_redis_op **op);
fv_status fv_redis_set(fv_redis *r, const void *name, size_t n_name, const void *value,
                       size_t n_value, int64_t ms, fv_redis_done done, void *user,
                       fv_redis_op **op);
fv_status fv_redis_delete(fv_redis *r, const void *name, size_t n_name, fv_redis_done done,
                          void *user, fv_redis_op **op);

/* `done` is not called any more; the operation itself goes on. NULL is fine. */
void fv_redis_drop(fv_redis_op *op);

const char *fv_redis_address(const fv_redis *r); /* HOST:PORT, for messages */

#endif
