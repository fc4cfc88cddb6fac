#ifndef FOVEA_MODEL_NET_FORWARD_TABLES_H
#define FOVEA_MODEL_NET_FORWARD_TABLES_H

/* Tables that the layers of one pass share: angles, slots, how many of a segment's last rows are
 * masked for each query, and which rows compute queries and keys of their own. Used inside
 * model/net only. */
#include "common/arena.h"
#include "model/net/adapter.h"
#include "model/net/captures.h"
#include "model/net/decoder.h"
#include "model/net/packed_forward.h"
#include "model/net/rope.h"
#include "model/net/workspace.h"

/* Rows of a pass that compute their own queries or keys. In a lazy layer these are fewer than all
 * rows, depending on each sequence's store. */
typedef struct fv_query_rows {
    bool all;                 /* every row of the pass; nothing is gathered */
    int32_t n;                /* number of rows */
    int32_t *row;             /* [n] ascending row numbers */
    fv_tensor cos[2], sin[2]; /* [n, D/2] of each RoPE */
    fv_kv_write_seq *write;   /* [n_seq] the same rows, packed, as kv_write takes them */
    fv_adapter_rows adapters; /* those of the rows */
    /* the inputs that it was made from */
    const uint8_t *own; /* [n_seq] */
    bool wanted;        /* only the wanted rows among these */
} fv_query_rows;

typedef struct fv_forward_tables {
    int32_t n_rows, n_wanted, l0;
    fv_rope_pos *rope_pos;    /* [n_rows] positions by which rows are rotated */
    int32_t *wanted;          /* [n_wanted] rows that continue in the last layer */
    fv_tensor cos[2], sin[2]; /* [n_rows, D/2] on the device, for each RoPE of the model */
    fv_tensor cos_wanted[2], sin_wanted[2]; /* those of the wanted rows, where layers share */
    fv_kv_write_seq *write;                 /* [n_seq] all rows */
    fv_attn_seq *attn;                      /* [n_seq] every row a query */
    fv_attn_seq *attn_wanted;               /* [n_seq] the wanted ones */
    /* [n_seq] masked_tail of all rows, and of the wanted ones; with image_slides layers that do not
     * slide have one of their own, in which images are not whole */
    const int32_t **whole, **whole_wanted, **causal, **causal_wanted;
    int32_t **window_from; /* [n_seq] in sliding layers, the first position that each row sees;
                               * NULL: no row is past the window yet */
    const int32_t *
        *position; /* [Hkv, FV_N_SEG] of each such sequence in turn: positions of a layer's
                    * entries */
    int32_t (*seg_rows)[FV_N_SEG]; /* [n_seq] rows per segment */
    int32_t **seg_pos[FV_N_SEG];   /* [n_seq] positions of those rows */
    fv_captures captures;
    fv_packed_forward packed;
    fv_adapter_rows adapters, adapters_wanted; /* of all rows, and of the wanted ones */
    fv_query_rows *set;                        /* [n_set] */
    int32_t n_set, most;                       /* most rows of a set that is not all */
    const fv_query_rows **keys;                /* [l1 - l0] rows whose keys each layer computes, */
    const fv_query_rows **queries;             /* and rows whose queries it computes */
} fv_forward_tables;

/* Makes the host's part in `arena`, for layers [l0, l1). In the network's last layer only the
 * wanted rows have queries. */
fv_status fv_forward_tables_make(const fv_text_config *cfg, const fv_forward_batch *pass,
                                 int32_t l0, int32_t l1, fv_arena *arena, fv_forward_tables *t);

/* Sets the sliding window of sequence b in layer l for the last rows of the sequence, which `at`
 * has; the store must hold the pass's entries. */
void fv_forward_tables_window(const fv_text_config *cfg, const fv_forward_batch *pass,
                              const fv_forward_tables *t, int32_t b, int32_t l, fv_attn_seq *at);

/* Sets what the rows of `at`, all of the sequence or the wanted ones, see of later rows in layer l. */
void fv_forward_tables_mask(const fv_text_config *cfg, const fv_forward_tables *t, int32_t b,
                            int32_t l, fv_attn_seq *at);

/* The same for a layer below the pass's first, whose store already holds the prompt's later rows: masks those
 * at later positions than each row of `at`. */
fv_status fv_forward_tables_mask_held(const fv_forward_batch *pass, int32_t b, int32_t l,
                                      fv_arena *arena, fv_attn_seq *at);

/* Bytes of scratch that the next call cuts. */
size_t fv_forward_tables_bytes(const fv_text_config *cfg, const fv_forward_batch *pass,
                               const fv_forward_tables *t);

/* Makes the device's part. */
fv_status fv_forward_tables_put(const fv_text_config *cfg, const fv_forward_batch *pass,
                                fv_forward_tables *t, const fv_rope rope[2], fv_arena *arena,
                                fv_workspace *ws);

#endif
