#ifndef FOVEA_MODEL_NET_KV_INTERNAL_H
#define FOVEA_MODEL_NET_KV_INTERNAL_H

/* Declarations shared by the files of the store only: kv_pool.c (memory), kv_trim.c (freeing unused
 * memory), kv.c (appending), kv_rows.c (keeping, moving and removing entries), kv_packed.c
 * (compressed blocks). */
#include <string.h>

#include "model/net/kv_packed.h"

enum { FV_KV_SLAB_PAGES = 256 }; /* with pages of 16 KiB a slab has 4 MiB and can use huge pages */

struct fv_kv_pool {
    fv_device *device;
    fv_kv_shape shape;
    size_t bytes_max, bytes_used;
    size_t peak;   /* highest bytes_used */
    size_t memory; /* slabs, free ones included, and tables of packed layers */
    fv_buf *spare; /* free list of extents, least recently used first */
    int32_t n_spare;
    size_t cap_spare;
    fv_buf *slab;
    int32_t n_slab;
    void **free_page; /* stack of free blocks: FV_KV_BLOCK keys, or values */
    int32_t n_free, cap_free;
    /* Fewest entries of the two lists since kv_trim.c last looked for unused memory, and when. */
    int32_t spare_least, free_least;
    double looked_s;
    fv_kv *stores;  /* all open stores */
    fv_buf staging; /* pinned; small results are copied here from the device */
};

/* State of a block table that kernels do not need. */
typedef struct fv_kv_run_state {
    int32_t cap_block, n_block;   /* capacity of `block`; blocks that have pages (text) */
    void *column[FV_N_KV_COLUMN]; /* [cap] values, of fv_kv.column_bytes each; or NULL */
    int32_t cap;
} fv_kv_run_state;

/* Data shared by packed blocks with the same rows (kv_packed_set.c). */
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
    fv_kv_pool *pool;
    fv_kv *next, **link;    /* list of the pool's stores, and the pointer to this one in it */
    char *owner;            /* in the arena */
    fv_block_table *run;    /* [N, Hkv, FV_N_SEG] */
    fv_kv_run_state *state; /* [N, Hkv, FV_N_SEG] */
    fv_buf *extent;         /* [N] */
    int32_t *ranked;        /* [N, Hkv] visual tokens when they were ranked; 0: not ranked */
    int32_t *masked; /* [N] masked visual tokens of each head, past the end of its block table */
    fv_kv_packed **packed;  /* [N, FV_N_SEG] NULL: the layer is raw */
    fv_kv_packed_set *sets; /* sets of the packed blocks */
    int32_t *source_layer;  /* [N] layer whose visual keys a layer uses */
    bool *reused_text;      /* [N] the layer uses the source layer's text keys too */
    size_t reserved;        /* bytes charged to the pool and not yet used */
    size_t column_bytes[FV_N_KV_COLUMN];
    fv_kv_sequence *sequence;
    fv_rope_map rope_map;
    fv_arena arena; /* memory of the arrays above and of the sequence */
};

/* Frees the first n spare extents, which were not used for the longest time. */
void fv_kv_pool_spare_free(fv_kv_pool *p, int32_t n);

/* ---- sizes and places ------------------------------------------------------------------- */

static inline size_t fv_kv_row_bytes(const fv_kv_shape *s) {
    return (size_t)s->d_head * fv_dtype_bytes(s->dtype);
}

static inline size_t fv_kv_page_bytes(const fv_kv_shape *s) {
    return FV_KV_BLOCK * fv_kv_row_bytes(s);
}

static inline int32_t fv_kv_blocks_for(int32_t rows) {
    return rows / FV_KV_BLOCK + (rows % FV_KV_BLOCK > 0);
}

static inline size_t fv_kv_run_at(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return ((size_t)layer * (size_t)kv->pool->shape.n_kv + (size_t)head) * FV_N_SEG + seg;
}

static inline char *fv_kv_row_of(const fv_kv_block *block, int32_t row, bool value, size_t bytes) {
    const fv_kv_block *b = &block[row / FV_KV_BLOCK];
    return (char *)(value ? b->v : b->k) + (size_t)(row % FV_KV_BLOCK) * bytes;
}

/* ---- the pool's memory (kv_pool.c) -------------------------------------------------------- */

/* Charges the pool; FV_EBUSY if that would exceed its limit. */
fv_status fv_kv_pool_charge(fv_kv_pool *p, size_t bytes);

/* Takes a slab for which `bytes` were charged. Giving it back empties *buf and returns the
 * charge. */
fv_status fv_kv_pool_take(fv_kv_pool *p, size_t bytes, fv_buf *out);
void fv_kv_pool_give(fv_kv_pool *p, fv_buf *buf);

/* Adds bytes of packed layers' tables, already charged and not the pool's own memory, to its memory
 * statistics; discount removes them and their charge. */
void fv_kv_pool_count(fv_kv_pool *p, size_t bytes);
void fv_kv_pool_discount(fv_kv_pool *p, size_t bytes);

/* Returns pinned host memory that the device copies into; valid until the next call. */
fv_status fv_kv_pool_on_host(fv_kv_pool *p, size_t bytes, void **out);

/* Takes or gives a page of FV_KV_BLOCK keys, or values; charged likewise. */
fv_status fv_kv_pool_page_take(fv_kv_pool *p, void **out);
void fv_kv_pool_page_give(fv_kv_pool *p, void *page);

/* ---- reserving memory (kv.c) --------------------------------------------------------------- */

/* Takes a slab from the pool, using reserved bytes first; errors as fv_kv_reserve. */
fv_status fv_kv_memory_take(fv_kv *kv, size_t bytes, fv_buf *out);
void fv_kv_memory_give(fv_kv *kv, fv_buf *buf); /* empties it */

/* Charges the pool `bytes` for tables that were charged *charged so far: charges the difference,
 * using reserved bytes first, or returns it. Errors as above, with *charged unchanged. */
fv_status fv_kv_tables_charge(fv_kv *kv, size_t bytes, size_t *charged);

/* Grows a run's array of blocks to n_block places. */
fv_status fv_kv_blocks_grow(fv_kv *kv, size_t run, int32_t n_block);

/* Adds one block for a head's text tokens; returns the blocks past `rows` to the pool. */
fv_status fv_kv_text_take(fv_kv *kv, int32_t layer, int32_t head);
void fv_kv_text_give(fv_kv *kv, int32_t layer, int32_t head, int32_t rows);

/* For a layer's extent in which head g holds rows[g] rows (K unless borrowed, then V, head after head):
 * return its size; allocate it; map a head's blocks into it from *base, and advance *base. */
size_t fv_kv_extent_bytes(const fv_kv *kv, int32_t layer, const int32_t *rows);
fv_status fv_kv_extent_lay(fv_kv *kv, int32_t layer, const int32_t *rows, fv_buf *out);
fv_status fv_kv_extent_map(fv_kv *kv, int32_t layer, int32_t head, char **base, int32_t rows);

/* ---- columns (kv_columns.c) ----------------------------------------------------------------- */

/* Grows all columns of a segment to n tokens. */
fv_status fv_kv_columns_grow(const fv_kv *kv, fv_kv_run_state *st, int32_t n);

/* Appends n tokens after the first `len`, at positions pos[n]; memory must be reserved. */
void fv_kv_columns_append(const fv_kv *kv, fv_kv_run_state *st, int32_t len, const int32_t *pos,
                          int32_t n);

void fv_kv_columns_move(const fv_kv *kv, fv_kv_run_state *st, int32_t to, int32_t from);

/* Reorders columns: token j gets the values of token idx[j] [n]; indices may be in any order and
 * repeat. */
fv_status fv_kv_columns_order(const fv_kv *kv, fv_kv_run_state *st, const int32_t *idx, int32_t n);

void fv_kv_columns_free(fv_kv_run_state *st);

/* ---- factors (kv_packed.c) ------------------------------------------------------------------ */

/* Frees the raw visual tokens of a layer. */
void fv_kv_drop_visual(fv_kv *kv, int32_t layer);

/* Drops text tokens [row0, row0 + n), as far as they exist, from this layer only, not from layers
 * that borrow its keys. Pages for `room` tokens stay. (kv_rows.c) */
fv_status fv_kv_drop_text(fv_kv *kv, int32_t layer, int32_t row0, int32_t n, int32_t room);

fv_kv_packed **fv_kv_packed_slot(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

/* Take the set equal to `like`, whose arrays are borrowed for the call, or make one; give it back; return
 * its cost in bytes; compute its angles. */
fv_status fv_kv_packed_set_take(fv_kv *kv, const fv_kv_packed_set *like, fv_kv_packed_set **out);
void fv_kv_packed_set_give(fv_kv *kv, fv_kv_packed_set *s); /* NULL is fine */
size_t fv_kv_packed_set_bytes(const fv_kv *kv, const fv_kv_packed_set *s);
fv_status fv_kv_packed_set_angles(fv_kv *kv, fv_kv_packed_set *s, const fv_rope *rope);

/* Frees a layer's packed blocks when the store closes. */
void fv_kv_packed_drop(fv_kv *kv, int32_t layer, fv_kv_segment seg);

#endif
