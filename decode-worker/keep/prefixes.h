#ifndef FOVEA_DECODE_WORKER_KEEP_PREFIXES_H
#define FOVEA_DECODE_WORKER_KEEP_PREFIXES_H

/* PREFIXES: the prompts that a decode worker has received, known by the keys of their links (handoff/links.h), so that
 * a later prompt that begins alike uses their KV, and it crosses the network once.
 *
 *   keep  a hand-off was committed: the first rows of its store become a share (kv/share.h), and nothing is copied
 *   find  the longest beginning of another prompt that is here
 *   extend  an answer is over: what follows the prompt is kept, too. Its last tokens end in no link, and are found by
 *         their ids: after each link those of the latest answer
 *
 * Prefixes take no memory from requests: what no store uses is idle, and is given up at once when the pool needs room,
 * the least recently used first, and a prefix before those that it extends. A prefix is found by the tenant only
 * that it came for, although keys differ between tenants anyway.
 *
 * For the pool's thread. */
#include "handoff/links.h"
#include "kv/cache/kept_log.h"
#include "kv/share.h"

typedef struct fv_prefixes_options {
    fv_kv_pool *pool; /* borrowed */
    size_t bytes_max; /* of all prefixes, in use or not; 0: nothing is kept */
    size_t
        owner_max; /* of one tenant's, of bytes_max; requests without a tenant have no such limit */
    fv_kept_log *log; /* learns which links with names are here; borrowed; NULL: none */
} fv_prefixes_options;

typedef struct fv_prefixes_counters {
    uint64_t n_given_up; /* prefixes, for room */
    uint64_t n_now, bytes_now;
} fv_prefixes_counters;

typedef struct fv_prefixes fv_prefixes; /* opaque */

/* Opens an empty table, to which the pool turns when it is full (fv_kv_pool_on_full). */
fv_status fv_prefixes_open(const fv_prefixes_options *opt, fv_prefixes **out);
void fv_prefixes_close(fv_prefixes *p); /* when no store uses a prefix; NULL is fine */

/* Finds the longest of the beginnings link[n] that is here, without the prompt's last token. Returns its number of links,
 * 0: none; *share has its rows, borrowed until the next call of this header: fv_kv_share_use keeps it. */
uint32_t fv_prefixes_find(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                          uint32_t n_tokens, fv_kv_share **share);

/* Whether an owner's prefixes may have so many bytes. */
bool fv_prefixes_may_keep(const fv_prefixes *p, const char *owner, size_t bytes);

/* Finds tokens that were kept after a link, by the ids [n] of those that follow it in a prompt; returns how many, and
 * changes *share to the one that has their rows, too. */
uint32_t fv_prefixes_find_tail(fv_prefixes *p, const char *owner, const fv_wire_link *after,
                               const int32_t *ids, uint32_t n, fv_kv_share **share);

/* Keeps the beginnings link[n] of a store of n_tokens, of which it has found the first n_found before. Does
 * nothing if another request has brought more of them meanwhile, if there is no room, or if the store's rows cannot
 * be shared: a prefix less is no failure. */
void fv_prefixes_keep(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                      uint32_t n_found, uint32_t n_tokens, fv_kv *kv);

/* Keeps the beginnings link[n], n > 0, of a store, and its tokens after the last one, whose ids these are. Does nothing
 * in the same cases. */
void fv_prefixes_extend(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                        const int32_t *tail, uint32_t n_tail, fv_kv *kv);

/* Drops what no store uses. With `stop` nothing more is kept: the worker is about to leave. */
void fv_prefixes_drop(fv_prefixes *p, bool stop);

fv_prefixes_counters fv_prefixes_count(const fv_prefixes *p);

#endif
