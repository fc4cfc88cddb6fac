#ifndef FOVEA_KV_CACHE_PREFIX_H
#define FOVEA_KV_CACHE_PREFIX_H

/* PREFIX CACHE: keeps the raw KV of prompts, segment by segment (kv/cache/chain.h), so that a prompt that begins like
 * an earlier one need not be computed from its first row.
 *
 *   take   the longest prefix of a chain that is kept; it stays until it is given back
 *   read   copies its rows into a request's store, layer by layer
 *   keep   copies the segments that are not kept yet out of a store that has been filled; or, where stages of the
 *          policy change layers as soon as they are filled, draft: layer by layer
 *
 * Rows are copied byte for byte, at the places that they have in a store that was computed: what is computed after
 * them has the same bits either way. A segment is kept once, however many prompts begin with it, and only after the
 * one before it.
 *
 * MEMORY is on the store's device, apart from the pool, and never exceeds bytes_max, bookkeeping included. When it is
 * full, the tenant that holds most, with what is being copied for it, gives up segments (segments.h says which), so each
 * of T tenants keeps up to a T-th whatever the others send. Segments that a request has taken stay. For the thread that computes. */
#include "kv/cache/kept_log.h"
#include "kv/kv.h"

typedef struct fv_prefix_cache fv_prefix_cache; /* opaque */

/* Opens a cache for stores of this shape on `dev`, of at most bytes_max; 0: it keeps nothing. */
fv_status fv_prefix_cache_open(fv_device *dev, const fv_kv_shape *shape, size_t bytes_max,
                               fv_prefix_cache **out);
void fv_prefix_cache_close(fv_prefix_cache *c); /* nothing may be taken any more; NULL is fine */

/* Tells the log from now on which links with names are kept, when they are told by fv_prefix_tell, and which are given up
 * again. Borrowed. */
void fv_prefix_cache_log(fv_prefix_cache *c, fv_kept_log *log);
void fv_prefix_tell(const fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link);

/* A prefix that was taken. */
typedef struct fv_prefix {
    int32_t n_link;                     /* segments */
    int32_t rows, n_text, n_visual;     /* as in fv_chain_link */
    double seconds;                     /* that computing these rows took */
    struct fv_prefix_segment **segment; /* [n_link] private */
} fv_prefix;                            /* {0} holds nothing and may be read and given */

/* Returns how many leading links of the chain are kept and end within rows_max rows; or rows of these. Changes
 * nothing. */
int32_t fv_prefix_links(const fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                        int32_t rows_max);
int32_t fv_prefix_rows(const fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                       int32_t rows_max);

/* Takes the longest prefix that is kept of this chain and has at most rows_max rows; *out is {0} if there is none.
 * Give it back. */
fv_status fv_prefix_take(fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                         int32_t rows_max, fv_prefix *out);
void fv_prefix_give(fv_prefix_cache *c, fv_prefix *p); /* empties *p */

/* Takes it likewise, without counting that as a use: for those that copy it elsewhere. */
fv_status fv_prefix_pin(fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                        fv_prefix *out);

/* A segment of a prefix or of a draft. Borrowed. */
typedef struct fv_prefix_part {
    const fv_chain_key *key;
    int32_t n; /* rows */
    bool visual;
    double *seconds; /* that they took to compute */
    fv_buf *rows;    /* on the cache's device */
    uint8_t *tiers;  /* bit i: tier i beyond the cache has it, or had it; the caller's */
} fv_prefix_part;
fv_prefix_part fv_prefix_part_of(const fv_prefix *p, int32_t i);

/* Appends the rows of a prefix to layers [l0, l1) of a store, which have none, and extents for all of the prompt's
 * visual rows. Errors as of fv_kv_reserve. */
fv_status fv_prefix_read(const fv_prefix_cache *c, const fv_prefix *p, fv_kv *kv, int32_t l0,
                         int32_t l1);

/* Seconds that a row took to compute. */
typedef struct fv_prefix_cost {
    double text, visual;
} fv_prefix_cost;

/* Keeps the segments of a chain whose rows `kv` holds raw in all layers, as computed, for `tenant`. Keeps the first
 * ones only if memory does not suffice for all. */
void fv_prefix_keep(fv_prefix_cache *c, const char *tenant, const fv_chain_link *link,
                    int32_t n_link, const fv_prefix_cost *cost, const fv_kv *kv);

/* The parts of a row that are kept. {0}: keys and values of all layers. A plan that goes on with all rows from layer n_layer on
 * (policy/plan/prefix.h) has those of the layers before it, and the residual stream there. Chains of different forms have
 * different bases. */
typedef struct fv_prefix_form {
    int32_t n_layer;     /* first layers; 0: all */
    size_t stream_bytes; /* of a row of the residual stream */
} fv_prefix_form;

/* Segments that are being copied out of a store. */
typedef struct fv_prefix_draft {
    int32_t n_link, n_old;              /* segments; the first n_old were kept already, and stay */
    const fv_chain_link *link;          /* borrowed */
    struct fv_prefix_segment **segment; /* [n_link] private */
} fv_prefix_draft;                      /* {0} has none */

/* Opens a draft of the segments of a tenant's chain, as many as there is memory for; copies layers [l0, l1) of them, which the
 * store holds raw; and keeps them, once all layers were copied, or drops them. Both empty the draft. */
void fv_prefix_draft_open(fv_prefix_cache *c, const char *tenant, const fv_chain_link *link,
                          int32_t n_link, fv_prefix_draft *out);
void fv_prefix_draft_copy(fv_prefix_cache *c, fv_prefix_draft *d, const fv_kv *kv, int32_t l0,
                          int32_t l1);

/* Opens a draft of a form other than {0}. Layers that the form lacks are not copied. */
void fv_prefix_draft_open_form(fv_prefix_cache *c, const char *tenant, const fv_chain_link *link,
                               int32_t n_link, fv_prefix_form form, fv_prefix_draft *out);

/* Copies the residual stream of the prompt's rows, from the first on, to a draft; or of a prefix to x [rows]. x is on the
 * cache's device. */
void fv_prefix_draft_copy_stream(fv_prefix_cache *c, fv_prefix_draft *d, const void *x);
fv_status fv_prefix_read_stream(const fv_prefix_cache *c, const fv_prefix *p, void *x);

void fv_prefix_draft_keep(fv_prefix_cache *c, fv_prefix_draft *d, const fv_prefix_cost *cost);
void fv_prefix_draft_drop(fv_prefix_cache *c, fv_prefix_draft *d);

/* Return the draft's segment i, so that rows and seconds are written from elsewhere than a store; drop the segments
 * from n on; and keep the rest as they are. */
fv_prefix_part fv_prefix_draft_part(const fv_prefix_draft *d, int32_t i);
void fv_prefix_draft_cut(fv_prefix_cache *c, fv_prefix_draft *d, int32_t n);
void fv_prefix_draft_adopt(fv_prefix_cache *c, fv_prefix_draft *d);

typedef struct fv_prefix_counters {
    size_t bytes;            /* held now */
    int64_t n_segment;       /* likewise */
    int32_t n_tenant;        /* that hold segments */
    uint64_t kept, given_up; /* segments, so far */
} fv_prefix_counters;
fv_prefix_counters fv_prefix_cache_count(const fv_prefix_cache *c);

/* Bytes that this tenant holds. */
size_t fv_prefix_cache_owned(const fv_prefix_cache *c, const char *tenant);

#endif
