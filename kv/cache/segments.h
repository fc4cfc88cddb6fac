#ifndef FOVEA_KV_CACHE_SEGMENTS_H
#define FOVEA_KV_CACHE_SEGMENTS_H

/* SEGMENTS by key, and by tenant in the order of their use: the bookkeeping of the prefix cache (prefix.c), which knows
 * no KV.
 *
 * A tenant has two lists (segmented LRU: Karedla, Love, Wherry, Computer 27(3), 1994). A new segment is in the first; one
 * that is used again moves to the second. When memory is full, the second list has at most four fifths of the tenant's
 * bytes, and gives its last segments back to the first. The last of the first list is given up first. So prompts that come
 * once push out each other, and not those that come again.
 *
 * Whoever uses a chain goes from its last segment to its first. So in a list a segment is ahead of those after it in the
 * chain, and it is in the second list if one of these is: what is given up has none after it. One thread at a time. */
#include "common/buf.h"
#include "kv/cache/chain.h"

typedef struct fv_prefix_tenant fv_prefix_tenant;

typedef struct fv_prefix_segment {
    fv_chain_key key;
    int32_t n; /* rows */
    bool visual;
    bool again;     /* it is in its tenant's second list */
    uint8_t tiers;  /* bit i: tier i beyond the cache has it, or had it (kv/tier/tier.h) */
    int32_t n_user; /* prefixes that hold it; it is not given up meanwhile */
    double seconds; /* that its rows took to compute */
    fv_buf
        rows; /* [layers, KV heads, keys and values, n], then the residual stream [n] if it is kept */
    int32_t n_layer;     /* layers of rows */
    size_t stream_bytes; /* of a row of the residual stream; 0: it is not kept */
    size_t bytes;        /* charged for all of it */
    fv_prefix_tenant *tenant;
    struct fv_prefix_segment *next_in_bucket;
    struct fv_prefix_segment *newer, *older; /* in its tenant's list */
} fv_prefix_segment;

typedef struct fv_prefix_list {
    fv_prefix_segment *newest, *oldest;
    size_t bytes;
} fv_prefix_list;

struct fv_prefix_tenant {
    fv_prefix_tenant *next;
    char *name;
    size_t bytes;   /* of its segments */
    size_t drafted; /* of those that are being filled for it, and cannot be found yet */
    fv_prefix_list once, again;
};

typedef struct fv_segments {
    fv_prefix_segment **bucket; /* [n_bucket] a power of two, or 0 */
    size_t n_bucket;
    int64_t n;
    size_t bytes, drafted; /* of all tenants */
    int32_t n_tenant;
    fv_prefix_tenant *tenants; /* those that have segments or drafts */
} fv_segments;                 /* {0} is empty */

void fv_segments_fini(fv_segments *s); /* frees all */

fv_prefix_segment *fv_segments_find(const fv_segments *s, const fv_chain_key *key); /* or NULL */

/* Counts the bytes of a segment for a tenant while it is being filled; ends that without adding it. The caller owns
 * the segment. */
fv_status fv_segments_draft(fv_segments *s, const char *tenant, fv_prefix_segment *segment);
void fv_segments_undraft(fv_segments *s, fv_prefix_segment *segment);

/* Adds a drafted segment as its tenant's newest one, and owns it from then on; on failure it stays a draft. */
fv_status fv_segments_add(fv_segments *s, fv_prefix_segment *segment);
void fv_segments_use(fv_prefix_segment *segment);   /* it is used again */
void fv_segments_renew(fv_prefix_segment *segment); /* it is as new as one that is added now */
void fv_segments_drop(fv_segments *s, fv_prefix_segment *segment);

/* Returns the segment to give up so that a tenant may draft `bytes` more: of the tenant that would hold most then,
 * drafts included, the last one without a user; if that tenant has none, of another one. Never of a tenant that
 * holds no more than the one that drafts would. NULL: there is none. */
fv_prefix_segment *fv_segments_victim(fv_segments *s, const char *tenant, size_t bytes);

fv_prefix_tenant *fv_segments_tenant(const fv_segments *s, const char *name); /* or NULL */

#endif
