#ifndef FOVEA_KV_SHARE_H
#define FOVEA_KV_SHARE_H

/* SHARES: the first rows of a prompt, in every layer and head, which several stores use at the same time. The
 * memory of the rows belongs to the share, by reference count; a store that uses it has block tables that point there,
 * so readers of block tables need no special case.
 *
 *   store that computed or received a prompt --make--> share --adopt--> stores of prompts that begin alike
 *
 * `make` moves pages and extents from the store to the share and copies nothing; the store uses the share from
 * then on. `adopt` uses full pages of text, and visual rows up to the last full block (all of them, if no others
 * follow), and copies the rest: fewer than FV_KV_BLOCK rows of each segment. So every row is where a store without a
 * share has it, and sums over the rows have the same bits.
 *
 * Shared rows never change. A store that uses a share may append rows, and drop text rows after the shared ones; all
 * else that moves rows (kv/kv.h: fv_kv_remove and the like) is for stores without one. So a store that evicts rows one by
 * one (fv_kv_sequence.accum) adopts copies, and leaves one (share_copy). A share that is made by
 * a store that uses another one extends it, and holds a reference to it.
 *
 * A share that no store uses, itself or by one that extends it, is idle: it counts as nobody's memory, and a cache
 * gives it up when the pool needs room (fv_kv_pool_on_full). For the pool's thread. */
#include "kv/kv.h"

typedef struct fv_kv_share fv_kv_share; /* opaque */

/* Returns whether all heads of all layers hold the same raw rows, in ascending order, with keys of their own: then
 * their first rows can be shared. */
bool fv_kv_is_uniform(const fv_kv *kv);

/* Makes a share of a uniform store's first n_text and n_visual rows, at least as many as it uses already. The store
 * must not change these rows afterwards. *out: a reference for the caller. FV_ENOMEM, FV_EBUSY (no room in the pool
 * for the share's tables): nothing has changed. */
fv_status fv_kv_share_make(fv_kv *kv, int32_t n_text, int32_t n_visual, fv_kv_share **out);

/* Makes one of a copy of these rows, so that the store may move its own; no store uses it yet. It extends `base`, which
 * has the store's rows up to *of_base; NULL: none. Errors as above, and FV_EBUSY if the pool has no room for the copy. */
typedef struct fv_kv_prefix fv_kv_prefix;
fv_status fv_kv_share_copy(const fv_kv *kv, fv_kv_share *base, const fv_kv_prefix *of_base,
                           int32_t n_text, int32_t n_visual, fv_kv_share **out);

fv_kv_share *fv_kv_share_ref(fv_kv_share *s);
void fv_kv_share_unref(fv_kv_share *s); /* frees it with the last reference; NULL is fine */

/* Marks a share as used without a store, as one does: it is not idle meanwhile. It also holds a reference. */
void fv_kv_share_use(fv_kv_share *s);
void fv_kv_share_unuse(fv_kv_share *s);

int32_t fv_kv_share_rows(const fv_kv_share *s, fv_kv_segment seg);
const int32_t *fv_kv_share_positions(const fv_kv_share *s, fv_kv_segment seg); /* of these rows */
size_t fv_kv_share_bytes(const fv_kv_share *s); /* of its own, without the share that it extends */
bool fv_kv_share_is_last(const fv_kv_share *s); /* the caller's reference is the only one */

const fv_kv_share *fv_kv_get_share(const fv_kv *kv); /* that the store uses; NULL: none */

/* Bytes that `make` would move to the share. */
size_t fv_kv_share_cost(const fv_kv *kv, int32_t n_text);

/* The rows of a share with which a prompt begins. */
struct fv_kv_prefix {
    int32_t n_text, n_visual; /* at most the share's */
    int32_t visual_rows;      /* of the whole prompt, at least n_visual */
    /* The share is needed for the call only if one that it extends has all rows that are not copied. */
    bool brief;
};

/* Bytes of the pool that a store with this prefix, not of copies, does not need itself. */
size_t fv_kv_prefix_bytes(const fv_kv_shape *shape, const fv_kv_prefix *p);

/* Begins an empty store with rows of a share, and allocates the extents for all of the prompt's visual rows. The
 * store uses the share (with `brief` perhaps only one that it extends) until it closes, or not at all if it evicts rows:
 * then all rows are copies. FV_EBUSY, FV_ENOMEM: close the store. */
fv_status fv_kv_adopt(fv_kv *kv, fv_kv_share *s, const fv_kv_prefix *p);

/* Rows of a head that are the share's and never change. */
int32_t fv_kv_shared_rows(const fv_kv *kv, fv_kv_segment seg);

/* Bytes of the shares that the store uses, which are not given up while it is open: with rows that it does not use. */
size_t fv_kv_shared_bytes(const fv_kv *kv);

/* Bytes that the store holds, with its part of each share that it uses: all stores that use a share have equal parts. */
size_t fv_kv_bytes_with_part(const fv_kv *kv);

#endif
