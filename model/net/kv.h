#ifndef FOVEA_MODEL_NET_KV_H
#define FOVEA_MODEL_NET_KV_H

/* THE KV STORE of one request: ragged rows per layer and KV head, in two segments.
 *
 *   FV_SEG_VISUAL   image tokens: one contiguous extent per layer, of exactly the rows it holds;
 *                   written during prefill, then only ever shortened
 *   FV_SEG_TEXT     prompt text and generated tokens: pages of FV_KV_BLOCK rows per layer and
 *                   head, taken from a pool as the sequence grows
 *
 * Every (layer, head, segment) has its own length: pruning takes rows from whole layers,
 * selection from single heads. Rows are in ascending position inside a segment, image tokens of a
 * ranked layer in the order of their rank instead, and those of a store that lets rows go one by
 * one (fv_kv_remove) in any; positions are the original ones of the prompt and never change (keys
 * are stored rotated). A layer may hold masked image tokens (fv_kv_mask): no query attends to
 * them. They are the last ones of each head.
 *
 * A lazy layer (lazy attention) borrows the keys of an earlier layer, its source layer: its own memory
 * holds values, its runs point to the source layer's keys, and what reads runs need not know. Rows of a
 * source layer and of those that borrow from it are the same, in number and order.
 *
 * A store belongs to one thread at a time; a pool to the thread that computes. */
#include "common/accum.h"
#include "common/buf.h"
#include "common/status.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fv_kv_segment { FV_SEG_VISUAL = 0, FV_SEG_TEXT, FV_N_SEG } fv_kv_segment;

typedef struct fv_kv_shape {
    int32_t n_layer, n_kv, d_head;
    fv_dtype dtype;
} fv_kv_shape;

/* ---- pool of pages --------------------------------------------------------------------- */

typedef struct fv_kv_pool fv_kv_pool; /* opaque */

/* A pool on `dev` that never holds more than bytes_max (0: no limit) in pages, extents and tables
 * of packed layers together. Memory is taken from the device as it is needed, kept for whoever
 * needs it next, and given back at close; an extent that is spare also when its place is wanted for
 * another. */
fv_status fv_kv_pool_open(fv_device *dev, const fv_kv_shape *shape, size_t bytes_max,
                          fv_kv_pool **out);
/* Every store of the pool must be closed before. NULL is fine. */
void fv_kv_pool_close(fv_kv_pool *pool);
size_t fv_kv_pool_used(const fv_kv_pool *pool);   /* bytes held by stores now */
size_t fv_kv_pool_memory(const fv_kv_pool *pool); /* and taken, with what is spare */
const fv_kv_shape *fv_kv_pool_shape(const fv_kv_pool *pool);

/* ---- one request ----------------------------------------------------------------------- */

typedef struct fv_kv fv_kv; /* opaque; owns its pages and extents, borrows the pool */

fv_status fv_kv_open(fv_kv_pool *pool, fv_kv **out);
void fv_kv_close(fv_kv *kv); /* gives everything back; NULL is fine */

const fv_kv_shape *fv_kv_get_shape(const fv_kv *kv);
fv_device *fv_kv_get_device(const fv_kv *kv); /* where its rows lie */

/* Runs of one layer, [Hkv, FV_N_SEG]: what kernels are given. Borrowed; valid until the layer is
 * changed by a call below. */
fv_block_table *fv_kv_runs(fv_kv *kv, int32_t layer);
int32_t fv_kv_len(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg);
/* From now on the layer's visual keys, and with `text` its text keys too, are those of `source layer`, a
 * layer before it that owns its keys; of the layer itself, they are its own again. To be called
 * before the layer gets any room; from then on what makes room or appends is called for the source layer
 * first, with the same numbers. */
void fv_kv_borrow(fv_kv *kv, int32_t layer, int32_t source_layer, bool text);

/* The layer whose visual keys a layer uses: itself unless it borrows. */
int32_t fv_kv_source_layer(const fv_kv *kv, int32_t layer);
bool fv_kv_borrows(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

/* The visual extent of a layer, once, for up to `rows` rows per head; rows = 0 is fine. FV_EBUSY
 * when the pool's limit is reached, FV_ENOMEM when the device's is. */
fv_status fv_kv_extent(fv_kv *kv, int32_t layer, int32_t rows);

/* The same with each head's own number, rows [Hkv]. */
fv_status fv_kv_extent_ragged(fv_kv *kv, int32_t layer, const int32_t *rows);

/* Makes room for `rows` more text tokens in every head of a layer. Errors as above; what was
 * there stays. */
fv_status fv_kv_reserve(fv_kv *kv, int32_t layer, int32_t rows);

/* Declares n rows written behind the last of every head (kernel kv_write), at positions pos[n]. */
fv_status fv_kv_append(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *pos, int32_t n);

/* The same for one head. */
fv_status fv_kv_append_head(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                            const int32_t *pos, int32_t n);

/* Shortens a segment of a layer: head g keeps rows idx[g][0 .. n[g]), ascending (image tokens: in any
 * order). A row whose index stands there twice is held twice, and counts twice in attention; the
 * segment may become longer by that, which can fail as fv_kv_reserve does. Rows move inside the
 * device, surplus pages return to the pool, and the visual extent is laid anew at its exact size.
 * Those who borrow the segment's keys are shortened with it, and never by themselves; the same
 * holds for rank and truncate below. */
fv_status fv_kv_keep(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *const *idx,
                     const int32_t *n);

/* ---- masked tokens ----------------------------------------------------------------------- */

/* Masks the last n image tokens of every head of a layer: no query attends to them any more. They stay
 * in place, past the end of the layer's block tables, and fv_kv_len does not count them. Once, and not where keys are
 * borrowed or lent, or rows leave. */
void fv_kv_mask(fv_kv *kv, int32_t layer, int32_t n);
int32_t fv_kv_masked(const fv_kv *kv, int32_t layer);

/* Rows of a head's segment with those, which whoever copies a store must copy; so many have
 * positions. */
int32_t fv_kv_held(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg);

/* ---- columns: values beside the tokens ----------------------------------------------------- */

/* A COLUMN has a value of fixed size for each token, in host memory, and every operation that moves,
 * keeps or removes tokens does the same with all columns. To add one, for a new value per token:
 *
 *   1. its name below, before FV_N_KV_COLUMN, with type and meaning;
 *   2. fv_kv_add_column where a request's store is opened: in prefill-worker/prefill/prefill.c, and if
 *      it is needed behind the hand-off, in decode-worker/receive/stream.c. Values begin as zeros;
 *   3. if it crosses, a section: FV_SECTION_ACCUM carries FV_KV_ACCUM (handoff/kv_packet.h,
 *      prefill-worker/export/export.c, decode-worker/receive/stream.c). */
typedef enum fv_kv_column {
    FV_KV_POSITION = 0, /* int32_t, in the prompt and the answer; every store has it */
    FV_KV_ACCUM,        /* float for each query head of the KV head: model/net/accum.h */
    FV_N_KV_COLUMN
} fv_kv_column;

/* From now on each token has `bytes` more; before the store has tokens. */
void fv_kv_add_column(fv_kv *kv, fv_kv_column column, size_t bytes);
size_t fv_kv_column_bytes(const fv_kv *kv, fv_kv_column column); /* of a token; 0: no such column */

/* The values of a head's segment, one for each of its fv_kv_held tokens. They may be written. Borrowed
 * until the layer is changed. */
void *fv_kv_values(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                   fv_kv_column column);

static inline const int32_t *fv_kv_positions(const fv_kv *kv, int32_t layer, int32_t head,
                                             fv_kv_segment seg) {
    return (const int32_t *)fv_kv_values(kv, layer, head, seg, FV_KV_POSITION);
}

/* ---- rank order ------------------------------------------------------------------------- */

/* Puts the image tokens of a layer in rank order: row j of head g becomes what was row order[g][j],
 * for all of its rows. From then on the layer is ranked: its rows are let go from the end. */
fv_status fv_kv_rank(fv_kv *kv, int32_t layer, const int32_t *const *order);

/* How many rows a head had when they were ranked, or before the first of a packed layer's was let
 * go (model/net/kv_packed.h); 0: none is let go, or it had none. */
int32_t fv_kv_ranked(const fv_kv *kv, int32_t layer, int32_t head);

/* Declares a layer ranked whose rows come in that order, rows [Hkv] of them at first. */
void fv_kv_set_ranked(fv_kv *kv, int32_t layer, const int32_t *rows);

/* Lets image tokens go from the end: head g keeps the first n[g], if it has more. That is a length,
 * and no row moves; when a quarter of the extent lies idle it is laid anew, and when no row is left
 * it goes back to the pool. What is idle until then counts as held. */
fv_status fv_kv_truncate(fv_kv *kv, int32_t layer, const int32_t *n);

/* Rows idx[n], ascending, of one head leave: the last rows of the segment take their places, so
 * that few rows move. Not where keys are borrowed or lent. Memory stays as it is until fv_kv_fit.
 */
fv_status fv_kv_remove(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                       const int32_t *idx, int32_t n);

/* Behind that: the layer's extent is laid anew when a quarter of it lies idle, and pages beyond
 * those of `text` text tokens a head, or of more where it has more, go back to the pool. */
fv_status fv_kv_fit(fv_kv *kv, int32_t layer, int32_t text);

/* ---- the sequence -------------------------------------------------------------------------- */

/* How compressed tokens are read (model/net/expand.h). */
typedef struct fv_expand_rule {
    bool on;      /* else all at full rank */
    double full;  /* share of the tokens that is read at full rank, rounded up */
    double alpha; /* 0..1: how much of a token's importance remains from turn to turn */
} fv_expand_rule;

/* What a sequence takes along from prefill to its last token. It is written and read by those who run
 * tokens; of it the store uses `expand.on` alone, to charge for observations that will come. All zeros
 * when a store is opened. */
typedef struct fv_kv_sequence {
    fv_accum_kind accum; /* what FV_KV_ACCUM counts; NONE: there is no such column */
    float
        n; /* n-softmax of its steps: an extra key of score ln n and value 0 stands for evicted tokens
              * (kernels/ops.h); 0: none does */
    fv_expand_rule expand;
    uint64_t n_evicted; /* KV entries that were evicted one by one (fv_kv_remove) */
} fv_kv_sequence;

fv_kv_sequence *fv_kv_get_sequence(const fv_kv *kv);

/* ---- from and to other memory ---------------------------------------------------------- */

/* Where rows lie, for whoever copies a store as it is: *at becomes the address of row `row` of a
 * head's keys (or values), and the result is how many of the rows [row, end) follow one another
 * there; at least 1 when row < end. `end` is at most fv_kv_held. Borrowed keys are the source layer's. */
int32_t fv_kv_stretch(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg, bool value,
                      int32_t row, int32_t end, void **at);

/* Sets bytes of the pool aside: they count as held from now on, and extents and pages of this store
 * are paid from them first. FV_EBUSY when the pool has not so many left. */
fv_status fv_kv_set_aside(fv_kv *kv, size_t bytes);

/* Gives back what was set aside and not used, and the pages beyond those of `rows` more text tokens
 * in each head. Returns the bytes given back. */
size_t fv_kv_settle(fv_kv *kv, int32_t rows);

/* Bytes of the pages of `rows` text tokens in every head of every layer, when n_borrow of the layers
 * borrow text keys. */
size_t fv_kv_text_bytes(const fv_kv_shape *shape, int32_t rows, int32_t n_borrow);

/* Bytes of the rows that are held (keys and values, borrowed keys once), by segment: what a report
 * calls resident. Image tokens: of their extents, idle ends included. */
size_t fv_kv_bytes(const fv_kv *kv, fv_kv_segment seg);

/* Bytes of the pool that it holds: extents, whole pages, tables of packed layers, what was set
 * aside. */
size_t fv_kv_bytes_held(const fv_kv *kv);

/* Asserts what holds for a layer, or with -1 for the store, after every operation: each ends with it.
 * Does nothing in builds without tests (FOVEA_TESTS). */
void fv_kv_check(const fv_kv *kv, int32_t layer);

#ifdef __cplusplus
}
#endif
#endif
