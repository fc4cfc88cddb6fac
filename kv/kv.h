#ifndef FOVEA_KV_KV_H
#define FOVEA_KV_KV_H

/* THE KV STORE of one request. A ROW is what the store holds of a token in one place: its key and value
 * in one KV head of a layer, or in a packed layer (kv/packed.h) in all heads together. The number of rows
 * varies by layer and KV head. There are two segments:
 *
 *   FV_SEG_VISUAL   visual tokens: one extent per layer, of exactly the rows it holds; written during
 *                   prefill, then only shortened
 *   FV_SEG_TEXT     prompt text and generated tokens: blocks of FV_KV_BLOCK rows per layer and head,
 *                   whose pages come from the pool as the sequence grows
 *
 * Every (layer, head, segment) has its own length: pruning drops tokens from whole layers,
 * selection drops rows from single heads. Rows of a segment are in ascending position, with two
 * exceptions: visual rows of a ranked layer are in the order of their rank, and a store that evicts
 * single rows (fv_kv_remove) has no order. Positions are those of the original prompt and never change
 * (keys are stored rotated). A layer may hold masked visual rows (fv_kv_mask), which no query attends
 * to. They are the last rows of each head.
 *
 * A lazy layer uses the keys of an earlier layer, its source layer: its own memory holds values,
 * and its block tables point to the source layer's keys, so readers of block tables need no special
 * case. A source layer and its lazy layers hold the same rows in the same order.
 *
 * FILES. pool.h has the memory of all stores, this header a store and its raw rows, share.h rows that several stores
 * use, packed.h packed rows; internal.h lists the sources, each of which calls only those before it.
 *
 * CACHES, which keep prefixes from one request to the next, are layers above this one: kv/cache/ for memory of its own,
 * decode-worker/keep/ for prompts in a pool that stores share (share.h). Nothing here knows of caches: a full pool
 * calls whoever has asked for it (fv_kv_pool_on_full).
 *
 * A store belongs to one thread at a time; a pool to the thread that computes. */
#include "common/accum.h"
#include "common/rope_map.h"
#include "common/status.h"
#include "kernels/ops.h"
#include "kv/pool.h"

typedef enum fv_kv_segment { FV_SEG_VISUAL = 0, FV_SEG_TEXT, FV_N_SEG } fv_kv_segment;

/* ---- one request ----------------------------------------------------------------------- */

typedef struct fv_kv fv_kv; /* opaque; owns its pages and extents, borrows the pool */

fv_status fv_kv_open(fv_kv_pool *pool, fv_kv **out);
void fv_kv_close(fv_kv *kv); /* gives everything back; NULL is fine */

/* Sets the owner that fv_kv_pool_owned counts the store for; "" at first. Copied. */
fv_status fv_kv_set_owner(fv_kv *kv, const char *owner);
const char *fv_kv_owner(const fv_kv *kv);

const fv_kv_shape *fv_kv_get_shape(const fv_kv *kv);
fv_kv_pool *fv_kv_get_pool(const fv_kv *kv);
fv_device *fv_kv_get_device(const fv_kv *kv); /* where rows are */

/* Returns the block tables of one layer, [Hkv, FV_N_SEG], as kernels take them. Borrowed until a call
 * below changes the layer. */
fv_block_table *fv_kv_runs(fv_kv *kv, int32_t layer);
int32_t fv_kv_len(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg);
/* Makes the layer use the visual keys, and with `text` also the text keys, of `source_layer`, an
 * earlier layer with keys of its own; with source_layer = layer it has its own keys again. Call it
 * before memory is reserved for the layer. Later reservations and appends must be made for the
 * source layer first, with the same numbers. */
void fv_kv_borrow(fv_kv *kv, int32_t layer, int32_t source_layer, bool text);

/* The layer whose visual keys a layer uses: itself unless it borrows. */
int32_t fv_kv_source_layer(const fv_kv *kv, int32_t layer);
bool fv_kv_borrows(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

/* Allocates the visual extent of a layer, once, for up to `rows` rows per head; rows = 0 is fine.
 * FV_EBUSY if the pool's limit is reached, FV_ENOMEM if the device is out of memory. */
fv_status fv_kv_extent(fv_kv *kv, int32_t layer, int32_t rows);

/* Allocates the extent with each head's own number of rows, rows [Hkv]. */
fv_status fv_kv_extent_ragged(fv_kv *kv, int32_t layer, const int32_t *rows);

/* Reserves memory for `rows` more text rows in every head of a layer. Errors as above; existing
 * rows stay. */
fv_status fv_kv_reserve(fv_kv *kv, int32_t layer, int32_t rows);

/* Appends n rows at positions pos[n], which the kernel kv_write has written after the last row
 * of every head. */
fv_status fv_kv_append(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *pos, int32_t n);

/* Appends rows to one head only. */
fv_status fv_kv_append_head(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                            const int32_t *pos, int32_t n);

/* Shortens a segment of a layer: head g keeps rows idx[g][0 .. n[g]), ascending (visual rows:
 * in any order). A row whose index is repeated is held twice and counts twice in attention; a
 * segment that becomes longer that way can fail as fv_kv_reserve does. Rows are moved on the
 * device, surplus blocks return to the pool, and the visual extent is reallocated at its exact size.
 * Lazy layers that use the segment's keys are shortened with it and never by themselves; the same
 * holds for rank and truncate below. */
fv_status fv_kv_keep(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *const *idx,
                     const int32_t *n);

/* Takes back the last n text rows of every head of every layer, which the latest pass has appended. Their memory stays
 * with the store. Not in a model with recurrent layers: its state keeps what ran. */
void fv_kv_cut(fv_kv *kv, int32_t n);

/* ---- masked rows ----------------------------------------------------------------------- */

/* Masks the last n visual rows of every head of a layer: no query attends to them any more. They
 * stay in memory, past the end of the layer's block tables, and fv_kv_len does not count them. At
 * most once, and not in a layer with shared keys or single evictions. */
void fv_kv_mask(fv_kv *kv, int32_t layer, int32_t n);
int32_t fv_kv_masked(const fv_kv *kv, int32_t layer);

/* Rows of a head's segment including masked ones: the number to copy with a store, and the
 * number of positions. */
int32_t fv_kv_held(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg);

/* ---- columns: values beside the rows ----------------------------------------------------- */

/* A COLUMN has a value of fixed size for each row, in host memory, and every operation that
 * moves, keeps or removes rows does the same with all columns. FV_KV_ACCUM already holds the
 * value that an evict method chooses by (FV_VALUE in policy/methods.def). To add a column:
 *
 *   1. its name below, before FV_N_KV_COLUMN, with type and meaning;
 *   2. fv_kv_add_column where a request's store is opened: in prefill-worker/prefill/prefill.c, and
 *      if it is needed after the hand-off, in decode-worker/receive/stream.c. Values start at zero;
 *   3. if it is sent, a section: FV_SECTION_ACCUM carries FV_KV_ACCUM (handoff/kv_packet.h,
 *      prefill-worker/export/export.c, decode-worker/receive/rows.c). */
typedef enum fv_kv_column {
    FV_KV_POSITION = 0, /* int32_t, position in prompt and answer; every store has it */
    FV_KV_ACCUM,        /* float for each query head of the KV head, or one: model/net/accum.h */
    FV_N_KV_COLUMN
} fv_kv_column;

/* Adds a column of `bytes` per row to a store that has no rows yet. */
void fv_kv_add_column(fv_kv *kv, fv_kv_column column, size_t bytes);
size_t fv_kv_column_bytes(const fv_kv *kv, fv_kv_column column); /* bytes per row; 0: no such
                                                                  * column */

/* The values of a head's segment, one for each of its fv_kv_held rows. They may be written.
 * Borrowed until the layer is changed. */
void *fv_kv_values(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                   fv_kv_column column);

static inline const int32_t *fv_kv_positions(const fv_kv *kv, int32_t layer, int32_t head,
                                             fv_kv_segment seg) {
    return (const int32_t *)fv_kv_values(kv, layer, head, seg, FV_KV_POSITION);
}

/* ---- rank order ------------------------------------------------------------------------- */

/* Puts the visual rows of a layer in rank order: row j of head g becomes what was row order[g][j],
 * for all of its rows. The layer is ranked from then on: its rows are dropped from the end. */
fv_status fv_kv_rank(fv_kv *kv, int32_t layer, const int32_t *const *order);

/* Rows that a head had when they were ranked or, in a packed layer, before any was dropped
 * (kv/packed.h); 0: not ranked, nothing dropped, or no rows. */
int32_t fv_kv_ranked(const fv_kv *kv, int32_t layer, int32_t head);

/* Marks a layer as ranked whose rows arrive in rank order; it had rows [Hkv] at first. */
void fv_kv_set_ranked(fv_kv *kv, int32_t layer, const int32_t *rows);

/* Drops visual rows from the end: head g keeps at most its first n[g]. Only lengths change, and
 * no row moves. When a quarter of the extent is unused it is reallocated, and when no row is left
 * it returns to the pool. Until then the unused part counts as held. */
fv_status fv_kv_truncate(fv_kv *kv, int32_t layer, const int32_t *n);

/* Removes rows idx[n], ascending, of one head: the last rows of the segment take their
 * places, so few rows move. Not with shared keys. Memory is not freed until fv_kv_fit. */
fv_status fv_kv_remove(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                       const int32_t *idx, int32_t n);

/* The same, but keys and values move when fv_kv_settle is called, together with those of other heads and layers, in one
 * operation of the device. Until then only lengths, positions and columns are read, and no more rows are removed from the
 * head's segment. */
fv_status fv_kv_remove_later(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                             const int32_t *idx, int32_t n);
fv_status fv_kv_settle(fv_kv *kv);

/* Frees memory after fv_kv_remove: reallocates the layer's extent if a quarter of it is unused, and
 * returns blocks to the pool beyond those of `text` text rows a head (or of more, if the head has
 * more). */
fv_status fv_kv_fit(fv_kv *kv, int32_t layer, int32_t text);

/* ---- the sequence -------------------------------------------------------------------------- */

/* How packed rows are read (model/net/expand.h). */
typedef struct fv_expand_rule {
    bool on;      /* otherwise all rows are read at full rank */
    double full;  /* share of the rows read at full rank, rounded up */
    double alpha; /* 0..1: how much of a row's importance remains from turn to turn */
} fv_expand_rule;

/* State that a sequence keeps from prefill to its last token. The code that runs tokens reads and
 * writes it; the store itself reads only `expand.on`, to charge for later observations. All zeros
 * when a store is opened. */
typedef struct fv_kv_sequence {
    fv_accum_kind accum; /* what FV_KV_ACCUM counts; NONE: no such column */
    float n; /* n-softmax of its steps: an extra key of score ln n and value 0 stands for evicted
              * tokens (kernels/ops.h); 0: none */
    fv_expand_rule expand;
    /* The adapter that its rows are computed with (model/net/adapter.h), borrowed; NULL: none. It never changes once the
     * store has rows. */
    const struct fv_adapter *adapter;
    uint64_t n_evicted; /* number of KV rows evicted one by one (fv_kv_remove) */
} fv_kv_sequence;

fv_kv_sequence *fv_kv_get_sequence(const fv_kv *kv);

/* Sets the map from positions to RoPE positions; empty until set, once, before the store has
 * rows. Copied. */
fv_status fv_kv_set_rope_map(fv_kv *kv, const fv_rope_map *map);
const fv_rope_map *fv_kv_rope_map(const fv_kv *kv);

/* ---- recurrent state --------------------------------------------------------------------- */

/* STATE. In a model with recurrent layers a sequence has, besides its rows, a state of fixed size in
 * each layer, F32: what its tokens have left there. The store owns its memory; the decoder reads and
 * writes it. Every token that ran is in it, dropped and evicted ones too, and none can be taken out. */

/* Allocates the state of all layers, zeros, if the model has any and the store does not have it yet.
 * FV_EBUSY, FV_ENOMEM as for fv_kv_extent. */
fv_status fv_kv_take_state(fv_kv *kv);

/* A layer's state, shape.state_bytes on the device; NULL: not allocated. */
void *fv_kv_state(const fv_kv *kv, int32_t layer);

/* Bytes of the state of all layers: a number of the shape alone. */
size_t fv_kv_state_bytes(const fv_kv_shape *shape);

/* ---- from and to other memory ---------------------------------------------------------- */

/* Addresses for copying a store: *at becomes the address of row `row` of a head's keys (or
 * values). Returns how many of the rows [row, end) are contiguous there, at least 1 when
 * row < end. `end` is at most fv_kv_held. Shared keys are the source layer's. */
int32_t fv_kv_contiguous(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                         bool value, int32_t row, int32_t end, void **at);

/* Reserves bytes of the pool: they count as held from now on, and blocks and slabs of this store
 * use them first. FV_EBUSY when the pool has fewer left. */
fv_status fv_kv_reserve_bytes(fv_kv *kv, size_t bytes);

/* Releases reserved bytes that are unused, and blocks beyond those of `rows` more text rows in
 * each head. Returns the number of bytes released. */
size_t fv_kv_release_unused(fv_kv *kv, int32_t rows);

/* Bytes of pages for `rows` text rows in every head of every layer, if n_borrow of the layers
 * borrow text keys. */
size_t fv_kv_text_bytes(const fv_kv_shape *shape, int32_t rows, int32_t n_borrow);

/* Bytes of the KV rows held, by segment (keys and values, borrowed keys once): a report's
 * resident bytes. For visual rows the bytes of extents, unused ends included. */
size_t fv_kv_bytes(const fv_kv *kv, fv_kv_segment seg);

/* Bytes of the pool that the store holds: extents, whole pages, tables of packed layers, reserved
 * bytes. */
size_t fv_kv_bytes_held(const fv_kv *kv);

/* Asserts the invariants of a layer, or with -1 of the whole store; every operation ends with this. Does
 * nothing in builds without tests (FOVEA_TESTS). */
void fv_kv_check(const fv_kv *kv, int32_t layer);

#endif
