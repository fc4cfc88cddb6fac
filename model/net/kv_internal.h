#ifndef FOVEA_MODEL_NET_KV_INTERNAL_H
#define FOVEA_MODEL_NET_KV_INTERNAL_H

/* Shared by the files of the store only: kv_pool.c (memory), kv_trim.c (memory that is not needed), kv.c (appending), kv_rows.c (keeping,
 * moving and removing entries), kv_packed.c (compressed blocks). */
#include <string.h>

#include "model/net/kv_packed.h"

enum { FV_KV_SLAB_PAGES = 256 }; /* with pages of 16 KiB 4 MiB, which can be huge pages */

struct fv_kv_pool {
    fv_device *device;
    fv_kv_shape shape;
    size_t bytes_max, bytes_used;
    size_t peak;   /* of bytes_used */
    size_t memory; /* slabs, free ones included, and tables of packed layers */
    fv_buf *spare; /* free list of slabs, the longest unused first */
    int32_t n_spare;
    size_t cap_spare;
    fv_buf *slab;
    int32_t n_slab;
    void **free_page; /* stack of free blocks: FV_KV_BLOCK keys, or values */
    int32_t n_free, cap_free;
    /* The fewest that the two lists held since the last look for what is not needed (kv_trim.c). */
    int32_t spare_least, free_least;
    double looked_s;
    fv_kv *stores;  /* all that are open */
    fv_buf staging; /* pinned: where small things are read that a device has written */
};

/* What a kernel need not see of a run. */
typedef struct fv_kv_run_state {
    int32_t cap_block, n_block;   /* of `block`; blocks that have pages (text) */
    void *column[FV_N_KV_COLUMN]; /* [cap] values, of fv_kv.column_bytes each; or NULL */
    int32_t cap;
} fv_kv_run_state;

/* What packed blocks of the same rows have in common (kv_packed_set.c). */
typedef struct fv_kv_packed_set {
    struct fv_kv_packed_set *next; /* of the store's */
    int32_t refs;                  /* blocks that have it */
    int32_t n, n_anchor;
    const int32_t *pos, *first, *anchor; /* as in fv_kv_packed */
    bool tiles;  /* its angles are each row's own, in tiles of rows, and not each block's */
    bool turned; /* angles are those of the rows' own positions */
    const int32_t *there;       /* pos and first on the store's device */
    fv_buf rows_buf, angle_buf; /* angle_buf: cosines, then sines; empty: not needed */
    void *host;
    size_t charged; /* to the pool, for all of this; for its angles before they are there */
} fv_kv_packed_set;

struct fv_kv {
    fv_kv_pool *pool;
    fv_kv *next, **link;    /* among the pool's; what points to it there */
    char *owner;            /* in the arena */
    fv_block_table *run;    /* [N, Hkv, FV_N_SEG] */
    fv_kv_run_state *state; /* likewise */
    fv_buf *extent;         /* [N] */
    int32_t *ranked; /* [N, Hkv] visual tokens when they were put in order; 0: they are not */
    int32_t *masked; /* [N] masked visual tokens of each head, past the end of its block table */
    fv_kv_packed **packed;  /* [N, FV_N_SEG] NULL: the layer is raw */
    fv_kv_packed_set *sets; /* of the packed blocks */
    int32_t *source_layer;  /* [N] whose visual keys a layer uses */
    bool *reused_text;      /* [N] and its text keys too */
    size_t reserved;        /* bytes charged to the pool and not yet used */
    size_t column_bytes[FV_N_KV_COLUMN];
    fv_kv_sequence *sequence;
    fv_rope_map rope_map;
    fv_arena arena; /* of the arrays above, and the sequence */
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

/* FV_EBUSY, with a sentence: more than the pool may hold. */
fv_status fv_kv_pool_charge(fv_kv_pool *p, size_t bytes);

/* An extent; `bytes` were charged. Giving empties it and charges its bytes back. */
fv_status fv_kv_pool_take(fv_kv_pool *p, size_t bytes, fv_buf *out);
void fv_kv_pool_give(fv_kv_pool *p, fv_buf *buf);

/* Tables of packed layers, whose memory is not the pool's: they count as held, and were charged. */
void fv_kv_pool_count(fv_kv_pool *p, size_t bytes);
void fv_kv_pool_discount(fv_kv_pool *p, size_t bytes);

/* Memory of the host that the device copies into, until the next call. */
fv_status fv_kv_pool_on_host(fv_kv_pool *p, size_t bytes, void **out);

/* A page of FV_KV_BLOCK keys, or values; likewise. */
fv_status fv_kv_pool_page_take(fv_kv_pool *p, void **out);
void fv_kv_pool_page_give(fv_kv_pool *p, void *page);

/* ---- reserving memory (kv.c) --------------------------------------------------------------- */

/* Memory of the pool for a slab, from reserved bytes first; errors as fv_kv_reserve. */
fv_status fv_kv_memory_take(fv_kv *kv, size_t bytes, fv_buf *out);
void fv_kv_memory_give(fv_kv *kv, fv_buf *buf); /* empties it */

/* Charges the pool `bytes` for tables that were charged *charged so far: takes the difference,
 * reserved bytes first, or gives it back. Errors as above, with *charged unchanged. */
fv_status fv_kv_tables_charge(fv_kv *kv, size_t bytes, size_t *charged);

/* Places for a run's blocks. */
fv_status fv_kv_blocks_grow(fv_kv *kv, size_t run, int32_t n_block);

/* Adds one block for a head's text tokens; returns the blocks past `rows` to the pool. */
fv_status fv_kv_text_take(fv_kv *kv, int32_t layer, int32_t head);
void fv_kv_text_give(fv_kv *kv, int32_t layer, int32_t head, int32_t rows);

/* A layer's extent whose head g holds rows[g] rows (K unless they are borrowed, then V, head after
 * head): its size, its memory, and a head's blocks pointed into it from *base on, which moves on.
 */
size_t fv_kv_extent_bytes(const fv_kv *kv, int32_t layer, const int32_t *rows);
fv_status fv_kv_extent_lay(fv_kv *kv, int32_t layer, const int32_t *rows, fv_buf *out);
fv_status fv_kv_extent_map(fv_kv *kv, int32_t layer, int32_t head, char **base, int32_t rows);

/* ---- columns (kv_columns.c) ----------------------------------------------------------------- */

/* Memory for n tokens in all columns of a segment. */
fv_status fv_kv_columns_grow(const fv_kv *kv, fv_kv_run_state *st, int32_t n);

/* Appends n tokens after the first `len`, at positions pos[n]; memory is reserved. */
void fv_kv_columns_append(const fv_kv *kv, fv_kv_run_state *st, int32_t len, const int32_t *pos,
                          int32_t n);

void fv_kv_columns_move(const fv_kv *kv, fv_kv_run_state *st, int32_t to, int32_t from);

/* Token j becomes what was token idx[j] [n], in any order and also twice. */
fv_status fv_kv_columns_order(const fv_kv *kv, fv_kv_run_state *st, const int32_t *idx, int32_t n);

void fv_kv_columns_free(fv_kv_run_state *st);

/* ---- factors (kv_packed.c) ------------------------------------------------------------------ */

/* A layer is without raw visual tokens from now on. */
void fv_kv_drop_visual(fv_kv *kv, int32_t layer);

/* Text tokens [row0, row0 + n), as far as there are so many, leave this layer alone, without those who
 * borrow its keys. Pages for `room` tokens stay. (kv_rows.c) */
fv_status fv_kv_drop_text(fv_kv *kv, int32_t layer, int32_t row0, int32_t n, int32_t room);

fv_kv_packed **fv_kv_packed_slot(const fv_kv *kv, int32_t layer, fv_kv_segment seg);

/* The set that is like this one, whose arrays are borrowed for the call; and back. */
fv_status fv_kv_packed_set_take(fv_kv *kv, const fv_kv_packed_set *like, fv_kv_packed_set **out);
void fv_kv_packed_set_give(fv_kv *kv, fv_kv_packed_set *s);                /* NULL is fine */
size_t fv_kv_packed_set_bytes(const fv_kv *kv, const fv_kv_packed_set *s); /* what it costs */
fv_status fv_kv_packed_set_angles(fv_kv *kv, fv_kv_packed_set *s, const fv_rope *rope);

/* At the end of a store. */
void fv_kv_packed_drop(fv_kv *kv, int32_t layer, fv_kv_segment seg);

#endif
