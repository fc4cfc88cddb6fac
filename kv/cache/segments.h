#ifndef FOVEA_KV_CACHE_SEGMENTS_H
#define FOVEA_KV_CACHE_SEGMENTS_H

/* SEGMENTS by key, and by tenant in the order of their use: the bookkeeping of the prefix cache (prefix.c), which knows
 * no KV. A segment that is used moves ahead of those used longer ago; users of a chain go from its last segment to its
 * first, so a segment is always ahead of those after it in the chain, and the last of a tenant's list has none after it.
 * One thread at a time. */
#include "common/buf.h"
#include "kv/cache/chain.h"

typedef struct fv_prefix_tenant fv_prefix_tenant;

typedef struct fv_prefix_segment {
    fv_chain_key key;
    int32_t n; /* rows */
    bool visual;
    int32_t n_user; /* prefixes that hold it; it is not given up meanwhile */
    double seconds; /* that its rows took to compute */
    fv_buf rows;    /* [layers, KV heads, keys and values, n] */
    size_t bytes;   /* charged for all of it */
    fv_prefix_tenant *tenant;
    struct fv_prefix_segment *next_in_bucket;
    struct fv_prefix_segment *newer, *older; /* in its tenant's list */
} fv_prefix_segment;

struct fv_prefix_tenant {
    fv_prefix_tenant *next;
    char *name;
    size_t bytes;
    fv_prefix_segment *newest, *oldest;
};

typedef struct fv_segments {
    fv_prefix_segment **bucket; /* [n_bucket] a power of two, or 0 */
    size_t n_bucket;
    int64_t n;
    size_t bytes; /* of all segments */
    int32_t n_tenant;
    fv_prefix_tenant *tenants; /* those that have segments */
} fv_segments;                 /* {0} is empty */

void fv_segments_fini(fv_segments *s); /* frees all */

fv_prefix_segment *fv_segments_find(const fv_segments *s, const fv_chain_key *key); /* or NULL */

/* Adds a segment of a tenant as the one used last, and owns it from then on; on failure the caller keeps it. */
fv_status fv_segments_add(fv_segments *s, const char *tenant, fv_prefix_segment *segment);
void fv_segments_touch(fv_prefix_segment *segment); /* it is used now */
void fv_segments_drop(fv_segments *s, fv_prefix_segment *segment);

/* Returns the segment to give up next: of the tenant that holds most the least recently used one that has no user;
 * of another tenant, if that one has none. NULL: all have users. */
fv_prefix_segment *fv_segments_victim(const fv_segments *s);

fv_prefix_tenant *fv_segments_tenant(const fv_segments *s, const char *name); /* or NULL */

#endif
