#ifndef FOVEA_KV_INTERNAL_H
#define FOVEA_KV_INTERNAL_H

/* The structures of a store, and the functions that its files share. Each file calls those before it:
 *
 *   pool.c         memory, limits, accounts (account.h)
 *   check.c        invariants
 *   columns.c      values beside the rows
 *   rows.c         memory of raw rows; appending
 *   moves.c        rows that are to move together
 *   rows_keep.c    keeping, moving and dropping raw rows
 *   rows_cut.c     taking back the newest text rows
 *   packed_set.c   tables that layers with the same packed rows share
 *   packed.c       packed blocks
 *   packed_keep.c  dropping packed rows
 *   state.c        the state of recurrent layers
 *   store.c        opening and closing; what a store holds in all
 *   share.c        prompts that several stores use */
#include <string.h>

#include "common/arena.h"
#include "kv/account.h"
#include "kv/packed.h"
#include "kv/share.h"

/* State of a block table that kernels do not need. */
typedef struct fv_kv_run_state {
    int32_t cap_block, n_block;   /* capacity of `block`; blocks that have pages (text) */
    void *column[FV_N_KV_COLUMN]; /* [cap] values, of fv_kv.column_bytes each; or NULL */
    int32_t cap;
} fv_kv_run_state;

/* Rows that are to move (moves.c). */
typedef struct fv_kv_moves {
    fv_row_move *move; /* [n] of `most` */
    int32_t *end;      /* [n_chain] of `most_chain`, as in fv_row_moves */
    int32_t n, most, n_chain, most_chain;
} fv_kv_moves;

/* Data shared by packed blocks with the same rows (packed_set.c). */
typedef struct fv_kv_packed_set {
    struct fv_kv_packed_set *next; /* list of the store's sets */
    int32_t refs;                  /* blocks that use it */
    int32_t n, n_anchor;
    const int32_t *pos, *first, *anchor; /* as in fv_kv_packed */
    bool tiles;                 /* angles per row, in tiles of rows, instead of one per block */
    bool turned;                /* angles are of the rows' own positions */
    const int32_t *there;       /* pos and first on the store's device */
    fv_buf rows_buf, angle_buf; /* angle_buf: cosines, then sines; empty: not needed */
    void *host;
    size_t charged; /* bytes charged to the pool for all of this, including angles that are not
                     * computed yet */
} fv_kv_packed_set;

struct fv_kv {
    fv_kv_account account;
    fv_block_table *run;    /* [N, Hkv, FV_N_SEG] */
    fv_kv_run_state *state; /* [N, Hkv, FV_N_SEG] */
    fv_buf *extent;         /* [N] the raw visual rows */
    fv_buf recurrent;       /* [N] states of shape.state_bytes; or empty */
    int32_t *ranked;        /* [N, Hkv] visual rows when they were ranked; 0: not ranked */
    int32_t *masked; /* [N] masked visual rows of each head, past the end of its block table */
    fv_kv_packed **packed;  /* [N, FV_N_SEG] NULL: the layer is raw */
    fv_kv_packed_set *sets; /* sets of the packed blocks */
    /* The shared prompt whose first rows this store uses, or NULL. Its memory belongs to the share: `shared_text`
     * blocks at the start of every head's text, and `shared_visual` visual rows of every head, either full blocks
     * or all that the store has. */
    fv_kv_share *share;
    int32_t shared_text, shared_visual;
    int32_t *source_layer; /* [N] layer whose visual keys a layer uses */
    bool *reused_text;     /* [N] the layer uses the source layer's text keys too */
    size_t column_bytes[FV_N_KV_COLUMN];
    fv_kv_moves moves; /* those of the operation that runs */
    fv_kv_sequence *sequence;
    fv_rope_map rope_map;
    fv_arena arena; /* memory of the arrays above and of the sequence */
};

/* ---- sizes and places ------------------------------------------------------------------- */

static inline int32_t fv_kv_blocks_for(int32_t rows) {
    return rows / FV_KV_BLOCK + (rows % FV_KV_BLOCK > 0);
}

static inline size_t fv_kv_run_at(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return ((size_t)layer * (size_t)kv->account.shape->n_kv + (size_t)head) * FV_N_SEG + seg;
}

static inline fv_kv_packed **fv_kv_packed_slot(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return &kv->packed[(size_t)layer * FV_N_SEG + seg];
}

static inline char *fv_kv_row_of(const fv_kv_block *block, int32_t row, bool value, size_t bytes) {
    const fv_kv_block *b = &block[row / FV_KV_BLOCK];
    return (char *)(value ? b->v : b->k) + (size_t)(row % FV_KV_BLOCK) * bytes;
}

/* ---- rows that move (moves.c) ------------------------------------------------------------------ */

/* Adds a move to the chain that has begun, and ends that chain: no other chain may touch what it writes. */
fv_status fv_kv_moves_add(fv_kv *kv, void *to, const void *from);
fv_status fv_kv_moves_end(fv_kv *kv);

void fv_kv_moves_forget(fv_kv *kv); /* all that have been added */
void fv_kv_moves_fini(fv_kv *kv);

/* ---- raw rows (rows.c, rows_keep.c) ----------------------------------------------------------- */

/* Makes room for n_block blocks in a head's table. */
fv_status fv_kv_blocks_grow(fv_kv *kv, size_t run, int32_t n_block);

/* Gives a head pages for at least `least` and at most `most` text rows: returns those that are too many,
 * which never fails, and takes those that lack. */
fv_status fv_kv_text_pages(fv_kv *kv, int32_t layer, int32_t head, int32_t least, int32_t most);

/* Asserts that a store's first blocks, positions and lengths are the share's, and that the share's account has every
 * byte and no other. */
void fv_kv_share_check(const fv_kv_share *s, const fv_kv *kv);

/* Stops using a shared prompt. The store must be empty or about to close. */
void fv_kv_part_from_share(fv_kv *kv);

/* For a layer's extent in which head g holds rows[g] rows (K unless borrowed, then V, head after head):
 * returns its size; maps a head's blocks into it from *base, and advances *base. Shared blocks come
 * before. */
size_t fv_kv_extent_bytes(const fv_kv *kv, int32_t layer, const int32_t *rows);
fv_status fv_kv_extent_map(fv_kv *kv, int32_t layer, int32_t head, char **base, int32_t rows);

/* Drops the raw visual rows of a layer. */
void fv_kv_drop_visual(fv_kv *kv, int32_t layer);

/* Drops text rows [row0, row0 + n), as far as they exist, from this layer only, not from layers
 * that borrow its keys. Pages for `room` rows stay. */
fv_status fv_kv_drop_text(fv_kv *kv, int32_t layer, int32_t row0, int32_t n, int32_t room);

/* ---- columns (columns.c) --------------------------------------------------------------------- */

/* Grows all columns of a segment to n rows. */
fv_status fv_kv_columns_grow(const fv_kv *kv, fv_kv_run_state *st, int32_t n);

/* Appends n rows after the first `len`, at positions pos[n]; memory must be reserved. */
void fv_kv_columns_append(const fv_kv *kv, fv_kv_run_state *st, int32_t len, const int32_t *pos,
                          int32_t n);

void fv_kv_columns_move(const fv_kv *kv, fv_kv_run_state *st, int32_t to, int32_t from);

/* Reorders columns: row j gets the values of row idx[j] [n]; indices may be in any order and
 * repeat. */
fv_status fv_kv_columns_order(const fv_kv *kv, fv_kv_run_state *st, const int32_t *idx, int32_t n);

void fv_kv_columns_free(fv_kv_run_state *st);

/* ---- packed blocks (packed_set.c, packed.c) ---------------------------------------------------- */

/* Take the set equal to `like`, whose arrays are borrowed for the call, or make one; give it back; return
 * its cost in bytes; compute its angles. */
fv_status fv_kv_packed_set_take(fv_kv *kv, const fv_kv_packed_set *like, fv_kv_packed_set **out);
void fv_kv_packed_set_give(fv_kv *kv, fv_kv_packed_set *s); /* NULL is fine */
size_t fv_kv_packed_set_bytes(const fv_kv *kv, const fv_kv_packed_set *s);
fv_status fv_kv_packed_set_angles(fv_kv *kv, fv_kv_packed_set *s, const fv_rope *rope);

/* Allocates the arrays of a block that belong to its layer alone: alive, rank, group. */
fv_status fv_kv_packed_own_arrays(fv_kv_packed *p, int32_t n, int32_t n_anchor, bool ranked);

/* Fills p->rows, which kernels take, from the set; on a device also allocates copies of alive and
 * group. */
fv_status fv_kv_packed_lay_rows(fv_kv *kv, fv_kv_packed *p, fv_kv_packed_set *set);

/* Copies alive[] to where kernels read it, after a change. */
fv_status fv_kv_packed_send_alive(fv_kv *kv, fv_kv_packed *p);

/* Allocates a part; a part that borrows everything has no memory. */
fv_status fv_kv_packed_take_part(fv_kv *kv, fv_kv_packed *p, int kind,
                                 const fv_packed_shape *shape);

/* Points the parts to what the source layer owns: keys, directions or coefficients. */
void fv_kv_packed_follow(const fv_kv *kv, fv_kv_packed *p, int32_t layer);

/* Charges the pool for the block as it is now; `observed`: also for importance and turn. */
fv_status fv_kv_packed_charge(fv_kv *kv, fv_kv_packed *p, bool observed);

/* Number of means that this block has gathered in this turn. */
static inline size_t fv_kv_packed_turn_rows(const fv_kv_packed *p) {
    return p && p->importance && p->n_turn > 0 ? (size_t)p->rows.n : 0;
}

/* Frees a layer's packed blocks. */
void fv_kv_packed_drop(fv_kv *kv, int32_t layer, fv_kv_segment seg);

#endif
