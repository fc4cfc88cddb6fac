#ifndef FOVEA_KV_TIER_TIER_H
#define FOVEA_KV_TIER_TIER_H

/* TIER: a place beyond the cache of prefixes (kv/cache/prefix.h) where segments of prompts are kept: slower, larger,
 * and there after a restart. One const table of functions a tier, as of devices.
 *
 * A tier answers "not there" whenever it is unsure: a segment that is damaged, foreign or gone is a miss, and is
 * counted. So a tier can make a prompt slower, within bounds, and never wrong. Any thread; reads and writes may run at
 * the same time. */
#include "kv/tier/seal.h"

typedef struct fv_kv_tier fv_kv_tier;

typedef struct fv_tier_counters {
    uint64_t n_segment, bytes;          /* held now; 0 where the tier does not know */
    uint64_t bytes_read, bytes_written; /* so far, of rows */
    uint64_t n_hit, n_miss;             /* reads */
    uint64_t n_damaged;                 /* segments that did not open, or files that are none */
    uint64_t n_given_up;                /* for others */
    uint64_t n_failed;                  /* reads and writes that the system refused */
} fv_tier_counters;

typedef struct fv_kv_tier_ops {
    const char *name; /* in reports: "disk" */

    /* Returns how many leading keys of key[n] are there. `waits`: it asks somebody else, and only a thread that may wait
     * calls it; otherwise it answers at once. */
    bool waits;
    int32_t (*has)(fv_kv_tier *t, const fv_chain_key *const *key, int32_t n);

    /* Reads the rows of a segment, whose head is *want but for its seconds, to rows[want->bytes]. FV_ENOTFOUND: it is not
     * there, and rows are undefined. */
    fv_status (*read)(fv_kv_tier *t, const fv_chain_key *key, const fv_seal_head *want, void *rows,
                      double *seconds);

    /* Writes a segment for a tenant; what is there stays. FV_ENOMEM: the tier has no room for it. */
    fv_status (*write)(fv_kv_tier *t, const char *tenant, const fv_chain_key *key,
                       const fv_seal_head *head, const void *rows);

    fv_tier_counters (*count)(fv_kv_tier *t);
    void (*close)(fv_kv_tier *t);
} fv_kv_tier_ops;

struct fv_kv_tier {
    const fv_kv_tier_ops *ops;
};

#endif
