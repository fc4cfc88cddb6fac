#ifndef FOVEA_KV_PACKED_H
#define FOVEA_KV_PACKED_H

/* PACKED LAYERS of a KV store hold their visual rows in one of the forms of packed/forms.h, and no raw
 * ones. Their visual block tables are empty. Their text rows are raw, and grow as usual. If text is
 * packed too, the text block tables hold the raw rows only. With factors of keys
 * (pack=svd,compress_text=keys) these are the rows after the prompt, and the prompt is one block with
 * raw values. With codes (pack=...,compress_text=all) these are the first row and the latest ones, and
 * the others are in a list of blocks.
 *
 *   extent --fv_kv_pack--> packed --fv_kv_packed_keep--> fewer rows --> none
 *                                                              '--fv_unpack--> few raw ones
 *
 * Keys and values are two blocks. A lazy layer uses the keys of its source layer: it has memory for
 * values only and is freed before its source layer. The same holds for the second of two merged
 * layers, which owns its blocks except for the directions. Blocks are charged to the pool to the
 * byte, and so are the tables of their rows (fv_kv_packed_tables).
 *
 * Runs on the thread that owns the store. */
#include "common/arena.h"
#include "common/rope.h"
#include "kv/kv.h"
#include "packed/forms.h"

/* Rows, their order, and the shape of their parts: a packed layer without its bytes. */
typedef struct fv_kv_packed_form {
    fv_packed_shape part[2]; /* [FV_PACKED_K], [FV_PACKED_V]; both of n rows and one form */
    int32_t n, n_anchor;
    const int32_t *pos;    /* [n] in the order of packed/lowrank.h */
    const int32_t *first;  /* [n_anchor + 1] */
    const int32_t *anchor; /* [n_anchor] the blocks' anchor positions; NULL: all are 0 (K1) */
    const int32_t *rank;   /* [n] order of dropping: while v rows are left, these are the rows of
                            * rank below v; ascending inside a block. NULL: not ranked */
    int32_t source_layer;  /* layer that owns the keys or directions: this layer or an earlier
                            * packed one */
    /* Text only: rows [row0, row0 + n), in order and unranked, follow those of the layer's earlier
     * blocks. Pages for `room` rows stay. Factors are of keys, beside raw values; keys in codes
     * have no anchor. */
    fv_kv_segment seg;
    int32_t row0, room;
} fv_kv_packed_form;

typedef struct fv_kv_packed {
    fv_packed_part part[2];
    fv_packed_rows rows; /* as kernels take them; the arrays are on the store's device */
    /* the same on the host; layers with the same rows share the first three */
    const int32_t *pos, *first;
    const int32_t *anchor; /* as in the form, or NULL */
    int32_t *alive;        /* [n_anchor] */
    int32_t *rank;         /* as in the form, or NULL */
    uint8_t *group;        /* [n] */
    int32_t n_alive;       /* valid rows */
    int32_t n_first;       /* rows before any was dropped */
    /* Attention that rows receive; NULL: not observed. */
    float *importance; /* [n] on the host */
    float *turn;       /* [n] on the store's device: mean over the rows of this turn, */
    int32_t n_turn;    /* of which n_turn have run */
    bool observed;     /* importance is set */
    bool stale;        /* importance is newer than the groups */
    int32_t source_layer;
    fv_kv_segment seg;
    int32_t number;            /* of the layer's text blocks, from 0; */
    struct fv_kv_packed *next; /* next block, or NULL */
    bool coded;                /* codes of its keys are made, if its shape has them */
    int32_t n_small;           /* n_small rows or fewer take less memory raw (fv_unpack); -1: not
                      * computed yet */
    /* private */
    fv_buf part_buf[2];
    struct fv_kv_packed_set *set; /* owns pos, first, anchor and their angles */
    fv_buf rows_buf, turn_buf;    /* rows_buf: copies on the device, if the store is not on the
                                   * host */
    void *host;
    size_t charged;     /* bytes charged to the pool for all but its parts and its set */
    bool pays_observed; /* charged for importance and turn too, allocated or not */
} fv_kv_packed;

/* The first packed block of a segment, or NULL if the layer is raw; the visual segment has one at most.
 * Borrowed until a call below changes the layer or the store closes. */
fv_kv_packed *fv_kv_packed_of(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

/* Number of the layer's text rows that are in blocks. */
int32_t fv_kv_packed_text_rows(const fv_kv *kv, int32_t layer);

/* Packs a layer, or those of its text rows that are in no block yet: frees the raw rows of the form
 * and allocates memory for the parts, which the caller fills. FV_EBUSY if the pool's limit is
 * reached: the raw rows are gone then, and the store must be closed. */
fv_status fv_kv_pack(fv_kv *kv, int32_t layer, const fv_kv_packed_form *form, fv_kv_packed **out);

/* The form of a block's own parts; keys and values have the same form. */
static inline const fv_packed_format *fv_kv_packed_format_of(const fv_kv_packed *p) {
    return fv_packed_format_of(p->part[FV_PACKED_V].shape.form);
}

/* Returns whether the block owns its keys. */
bool fv_kv_packed_owns_keys(const fv_kv_packed *p, int32_t layer);

/* Makes what attention needs, once: the angles, for all layers with the same rows; and the codes of keys,
 * if the shape has them, from coefficients that have arrived. FV_EUNSUPPORTED if the backend makes no
 * codes. */
fv_status fv_kv_packed_ready(fv_kv *kv, fv_kv_packed *p, fv_backend *be, const fv_rope *rope);

/* Allocates importance [n]; does nothing if it is there. */
fv_status fv_kv_packed_observe(fv_kv *kv, fv_kv_packed *p);

/* Copies this turn's means of every packed layer that has some (n_turn > 0) to the host: layer after
 * layer, [n] each. Borrowed until the next call for a store of this pool. */
fv_status fv_kv_packed_turns(fv_kv *kv, const float **out);

/* Returns a part with its bytes on the host: the part itself if the store is on the host, otherwise
 * a copy in `arena`. */
fv_status fv_kv_packed_on_host(const fv_kv *kv, const fv_packed_part *part, fv_arena *arena,
                               fv_packed_part *out);

/* Copies group[] to the device after a change on the host. */
fv_status fv_kv_packed_regroup(fv_kv *kv, fv_kv_packed *p);

/* Removes all text rows of a layer, packed or not: for a caller that holds a copy and
 * compresses them together (decode-worker/conversations/recompress.h). Layers that use its keys
 * must follow before the next forward batch. */
fv_status fv_kv_clear_text(fv_kv *kv, int32_t layer);

/* The functions below are for visual rows. */

/* Layers of one group of latents hold the first rows of their source layer, no layer more than an
 * earlier one, all in one anchor block in rank order. */

/* Drops rows without moving any: the first alive[a] rows of each anchor block [n_anchor] stay
 * valid. Dropped rows cannot return. Lazy layers drop the same rows; with latents only this
 * layer drops. */
fv_status fv_kv_packed_shorten(fv_kv *kv, int32_t layer, const int32_t *alive);

/* Drops by rank: rows of rank below v stay valid. When a quarter of the rows is invalid the
 * blocks are reallocated, and when none is valid they return to the pool. */
fv_status fv_kv_packed_shrink(fv_kv *kv, int32_t layer, int32_t v);

/* Reallocates the blocks with the valid rows idx[0 .. n), anchor block by anchor block and in any
 * order within one; their bits stay the same. n = 0 leaves the layer without visual rows. The
 * memory of the others returns to the pool. Call it for the source layer: lazy layers keep the same
 * rows, layers of latents those of them that they have, which must come first in idx. */
fv_status fv_kv_packed_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n);

/* Keeps rows of latents: layer l keeps idx[0 .. n[l]). */
fv_status fv_kv_packed_nest(fv_kv *kv, int32_t layer, const int32_t *idx, const int32_t *n);

/* Reallocates the blocks with the valid rows. */
fv_status fv_kv_packed_fit(fv_kv *kv, int32_t layer);

/* Ends the packed state of a layer without packed rows left, recording how many it had at first
 * (fv_kv_ranked). Layers that borrow its keys must follow before the next pass. */
void fv_kv_packed_end(fv_kv *kv, int32_t layer);

/* Bytes of the tables of all packed blocks: positions, angles and observed attention. Layers with
 * the same rows share most of them. The pool is charged for these; for angles and observations that
 * will be needed, in advance. */
size_t fv_kv_packed_tables(const fv_kv *kv);

/* Bytes of tables for a block of this form; `alone`: including those that layers with the same rows
 * share. */
size_t fv_kv_packed_cost(const fv_kv *kv, const fv_kv_packed_form *form, bool alone);

/* Bytes of a layer's own parts. */
size_t fv_kv_packed_bytes(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

#endif
