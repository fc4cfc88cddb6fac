#ifndef FOVEA_KV_CACHE_KEPT_LOG_H
#define FOVEA_KV_CACHE_KEPT_LOG_H

/* KEPT LOG: which beginnings of prompts a worker keeps, as its routers are told.
 *
 *   [thread that computes]  keep, drop --> changes, the newest last --> read [loop thread], once for each router
 *
 * A beginning has two names: the key of its last link (kv/cache/chain.h), by which the worker gives it up, and the router's
 * digest (PromptEnd in handoff.proto), which routers are told. Of each digest the log has the last change only. A reader
 * has a cursor and gets the changes after it, so one that begins at 0 learns all that is kept. A full log forgets its
 * oldest change: routers may then believe something old, which costs them time and nothing else. Any thread. */
#include "kv/cache/chain.h"

enum { FV_KEPT_LOG_MAX = 65536, FV_KEPT_READ_MAX = 1024 };

typedef struct fv_kept_log fv_kept_log; /* opaque */

typedef struct fv_kept_change {
    uint64_t digest;
    uint32_t tokens; /* 0: given up */
    float seconds;   /* that computing them took */
} fv_kept_change;

/* n_max: of digests, at most FV_KEPT_LOG_MAX. */
fv_status fv_kept_log_open(int32_t n_max, fv_kept_log **out);
void fv_kept_log_close(fv_kept_log *log); /* NULL is fine */

/* The beginning that ends with the link of this key is kept; nothing changes if it was known. In each, log NULL is fine. */
void fv_kept_log_keep(fv_kept_log *log, const uint8_t key[FV_DIGEST_BYTES],
                      const fv_kept_change *what);
/* All beginnings that end with it are given up. */
void fv_kept_log_drop(fv_kept_log *log, const uint8_t key[FV_DIGEST_BYTES]);

/* Writes the next changes after *cursor, at most n, the oldest first, and moves the cursor behind them. Returns their
 * number. */
int32_t fv_kept_log_read(fv_kept_log *log, uint64_t *cursor, fv_kept_change *out, int32_t n);

#endif
