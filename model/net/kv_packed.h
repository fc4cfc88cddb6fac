#ifndef FOVEA_MODEL_NET_KV_PACKED_H
#define FOVEA_MODEL_NET_KV_PACKED_H

/* COMPRESSED LAYERS of a KV store: a layer's visual tokens as low-rank factors (kernels/packed.h),
 * as codes (kernels/codes.h) or as directions shared by two layers (kernels/merged.h), instead of
 * uncompressed entries. Its visual block tables are empty then. Its text tokens are uncompressed
 * and grow as usual. If text is compressed too, its block tables have the tokens that are not: with
 * factors of keys (pack=svd,compress_text=keys) those after the prompt, which is one block with
 * uncompressed values; with codes (model/net/text_codes.h) the first token and the latest ones, and
 * blocks of the others follow one another.
 *
 *   slab --fv_kv_pack--> compressed --fv_kv_packed_keep--> fewer tokens --> none
 *                                                              '--fv_unpack--> few uncompressed
 *
 * Keys and values are two blocks. A lazy layer uses the keys of its source layer: it has memory for
 * values only and is freed before its source layer. So is the second of two merged layers, whose
 * blocks are its own except for the directions. Blocks are charged to the pool to the byte, and so
 * are the tables of their token indices (fv_kv_packed_tables).
 *
 * The thread that owns the store. */
#include "common/arena.h"
#include "kernels/packed.h"
#include "model/net/kv.h"
#include "model/net/rope.h"

/* Which rows, in what order, and what shape their parts have: all but the bytes. */
typedef struct fv_kv_packed_form {
    fv_packed_shape part[2]; /* [FV_PACKED_K], [FV_PACKED_V]; both of n rows and one form */
    int32_t n, n_anchor;
    const int32_t *pos;    /* [n] in the order of kernels/packed.h */
    const int32_t *first;  /* [n_anchor + 1] */
    const int32_t *anchor; /* [n_anchor] the blocks' anchor positions; NULL: all are 0 (K1) */
    const int32_t *rank;   /* [n] the order in which rows are let go: a row's rank is below v while
                            * v rows are left; ascending inside a block. NULL: they are not ranked */
    int32_t source_layer;  /* whose keys, or directions: the layer itself, or a packed layer before
                            * it */
    /* Of text: rows [row0, row0 + n), in their order, without ranks; they come after those of the
     * layer's blocks. Pages for `room` rows stay. Factors are of keys, beside values as rows; keys in
     * codes are rotated by no anchor. */
    fv_kv_segment seg;
    int32_t row0, room;
} fv_kv_packed_form;

typedef struct fv_kv_packed {
    fv_packed_part part[2];
    fv_packed_rows rows; /* what kernels are given; the arrays are on the store's device */
    /* the same on the host; layers with the same rows share the first three */
    const int32_t *pos, *first;
    const int32_t *anchor; /* as in the form, or NULL */
    int32_t *alive;        /* [n_anchor] */
    int32_t *rank;         /* as in the form, or NULL */
    uint8_t *group;        /* [n] */
    int32_t n_alive;       /* rows that count */
    int32_t n_first;       /* rows there were before any was let go */
    /* The attention that tokens receive (expand.h); NULL: not wanted. */
    float *importance; /* [n] on the host */
    float *turn;       /* [n] on the store's device: the mean over the rows of this turn, */
    int32_t n_turn;    /* so many of which have run */
    bool observed;     /* importance holds something */
    bool stale;        /* and is newer than the groups */
    int32_t source_layer;
    fv_kv_segment seg;
    int32_t number;            /* of the layer's blocks of text, from 0; */
    struct fv_kv_packed *next; /* the one after it, or NULL */
    bool coded;                /* codes of its keys are made, where there are any */
    int32_t n_small; /* model/net/unpack.c: with so many rows or fewer they are smaller as raw ones;
                      * -1: not known yet */
    /* private */
    fv_buf part_buf[2];
    struct fv_kv_packed_set *set; /* of pos, first, anchor, and their angles */
    fv_buf rows_buf, turn_buf;    /* rows_buf: where the store is not on the host */
    void *host;
    size_t charged;     /* to the pool, for all of it but its parts and its set: */
    bool pays_observed; /* importance and turn too, there or to come */
} fv_kv_packed;

/* The packed block of a layer's visual tokens, or NULL: it is raw. Borrowed, until the layer is
 * changed by a call below or the store closes. */
fv_kv_packed *fv_kv_packed_at(const fv_kv *kv, int32_t layer);

/* The same of its text tokens, or of either segment: the first block. */
fv_kv_packed *fv_kv_packed_text(const fv_kv *kv, int32_t layer);
fv_kv_packed *fv_kv_packed_of(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

/* Text tokens of a layer that are in blocks. */
int32_t fv_kv_packed_text_rows(const fv_kv *kv, int32_t layer);

/* Makes a layer packed, or text of it that is in no block yet: gives its raw rows back that the form is of, and takes memory for the
 * parts, whose bytes are the caller's to write. FV_EBUSY when the pool's limit is reached: the rows
 * are gone then, and the store is to be closed. */
fv_status fv_kv_pack(fv_kv *kv, int32_t layer, const fv_kv_packed_form *form, fv_kv_packed **out);

/* Whether its keys have memory of their own. */
bool fv_kv_packed_owns_keys(const fv_kv_packed *p, int32_t layer);

/* Angles of the anchors, which attention needs: worked out once for all layers with the same rows,
 * and then kept. */
fv_status fv_kv_packed_angles(fv_kv *kv, fv_kv_packed *p, const fv_rope *rope);

/* Codes of keys, where the shape has them, and which attention needs: made once, of coefficients that
 * have come. FV_EUNSUPPORTED: the backend makes none. */
fv_status fv_kv_packed_codes(fv_kv_packed *p, fv_backend *be);

/* Allocates importance [n]; does nothing if it is there. */
fv_status fv_kv_packed_observe(fv_kv *kv, fv_kv_packed *p);

/* The means of this turn on the host, of every packed layer that has one (n_turn > 0): layer after
 * layer, [n] each. Borrowed until the next call for a store of this pool. */
fv_status fv_kv_packed_turns(fv_kv *kv, const float **out);

/* A part whose bytes are on the host: the part itself where the store is there, or a copy in
 * `arena`. */
fv_status fv_kv_packed_on_host(const fv_kv *kv, const fv_packed_part *part, fv_arena *arena,
                               fv_packed_part *out);

/* group[] was changed on the host: brings it to the device. */
fv_status fv_kv_packed_regroup(fv_kv *kv, fv_kv_packed *p);

/* Removes all text tokens of a layer, compressed or not: for a caller that holds a copy and
 * compresses them together (decode-worker/conversations/recompress.h). Layers that use its keys
 * must follow before the next forward batch. */
fv_status fv_kv_clear_text(fv_kv *kv, int32_t layer);

/* What follows is of visual tokens. */

/* Layers of one group of latents have the first ones of their source layer's tokens, and none has
 * more than a layer before it. All are of one anchor block, in the order of their ranks. */

/* Drops tokens without moving any: the first alive[a] tokens of each anchor block [n_anchor] stay
 * valid. Dropped tokens cannot return. Lazy layers drop the same; of latents this layer alone. */
fv_status fv_kv_packed_shorten(fv_kv *kv, int32_t layer, const int32_t *alive);

/* The same by rank: of ranked tokens, those of rank below v stay valid. When a quarter of the
 * tokens is invalid the blocks are reallocated, and when none is valid they return to the pool. */
fv_status fv_kv_packed_shrink(fv_kv *kv, int32_t layer, int32_t v);

/* Reallocates the blocks with the valid tokens idx[0 .. n), anchor block by anchor block and in any
 * order within one; their bits stay the same. n = 0 leaves the layer without visual tokens. The
 * memory of the others returns to the pool. Lazy layers keep the same tokens, and layers of latents
 * those that they have, which come first in idx; so this is called for the source layer. */
fv_status fv_kv_packed_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n);

/* The same for latents, each layer with as many as it is to have: layer l keeps idx[0 .. n[l]). */
fv_status fv_kv_packed_nest(fv_kv *kv, int32_t layer, const int32_t *idx, const int32_t *n);

/* Reallocates the blocks with the valid tokens. */
fv_status fv_kv_packed_fit(fv_kv *kv, int32_t layer);

/* The layer is without packed rows from now on, and what it had at first is noted
 * (fv_kv_ranked). Those that borrow its keys are to follow before the next pass. */
void fv_kv_packed_end(fv_kv *kv, int32_t layer);

/* Bytes of the tables that say which rows packed blocks have, of all layers: positions, angles, and
 * what is observed of rows. Layers with the same rows share most of them. The pool is charged for
 * them, for angles and observations that are sure to come from the beginning. */
size_t fv_kv_packed_tables(const fv_kv *kv);

/* Bytes that the tables of a block of this form cost; `alone`: with those that layers with the same
 * rows share. */
size_t fv_kv_packed_cost(const fv_kv *kv, const fv_kv_packed_form *form, bool alone);

/* Bytes of a layer's own parts. */
size_t fv_kv_packed_bytes(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

#endif
