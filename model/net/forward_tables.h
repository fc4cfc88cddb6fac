#ifndef FOVEA_MODEL_NET_FORWARD_TABLES_H
#define FOVEA_MODEL_NET_FORWARD_TABLES_H

/* What the layers of one pass share: angles, slots, how many of a segment's last rows each query
 * must not see, and which rows compute queries and keys of their own. Inside model/net only. */
#include "common/arena.h"
#include "model/net/captures.h"
#include "model/net/decoder.h"
#include "model/net/packed_forward.h"
#include "model/net/rope.h"
#include "model/net/workspace.h"

/* Rows of a pass that compute what others borrow. A lazy layer runs fewer queries and keys than
 * it has rows: which, depends on each sequence's store. */
typedef struct fv_query_rows {
    bool all;                 /* every row of the pass: nothing is gathered */
    int32_t n;                /* number of rows */
    int32_t *row;             /* [n] ascending row numbers */
    fv_tensor cos[2], sin[2]; /* [n, D/2] of each RoPE */
    fv_kv_write_seq *write;   /* [n_seq] the same rows, packed, as kv_write takes them */
    /* what it was made from */
    const uint8_t *own; /* [n_seq] */
    bool wanted;        /* of those rows, only the wanted ones */
} fv_query_rows;

typedef struct fv_forward_tables {
    int32_t n_rows, n_wanted;
    fv_rope_pos *rope_pos;    /* [n_rows] positions that rows are rotated by */
    int32_t *wanted;          /* [n_wanted] numbers of the tokens that are pruned the last layer */
    fv_tensor cos[2], sin[2]; /* [n_rows, D/2] on the device, of each RoPE that there is */
    fv_kv_write_seq *write;   /* [n_seq] all rows */
    fv_attn_seq *attn;        /* [n_seq] every row a query */
    fv_attn_seq *attn_wanted; /* [n_seq] the wanted ones */
    int32_t **window_from;    /* [n_seq] in layers that slide, the first position that each row
                               * sees; NULL: none is past the window yet */
    const int32_t *
        *position; /* [Hkv, FV_N_SEG] of each such sequence in turn, of a layer's entries */
    int32_t (*seg_rows)[FV_N_SEG]; /* [n_seq] rows per segment */
    int32_t **seg_pos[FV_N_SEG];   /* [n_seq] positions of those rows */
    fv_captures captures;
    fv_packed_forward packed;
    fv_query_rows *set;            /* [n_set] */
    int32_t n_set, most;           /* most rows of a set that is not all */
    const fv_query_rows **keys;    /* [l1 - l0] whose keys a layer computes, */
    const fv_query_rows **queries; /* and whose queries */
} fv_forward_tables;

/* The host's part, in `arena`: for layers [l0, l1). In the last of all layers only the wanted rows
 * ask. */
fv_status fv_forward_tables_make(const fv_text_config *cfg, const fv_forward_batch *pass,
                                 int32_t l0, int32_t l1, fv_arena *arena, fv_forward_tables *t);

/* The window of sequence b in layer l, whose entries its store holds, for the last of its rows that `at` has. */
void fv_forward_tables_window(const fv_text_config *cfg, const fv_forward_batch *pass,
                              const fv_forward_tables *t, int32_t b, int32_t l, fv_attn_seq *at);

/* Bytes of scratch that the next call cuts. */
size_t fv_forward_tables_bytes(const fv_text_config *cfg, const fv_forward_batch *pass,
                               const fv_forward_tables *t);

/* The device's part. */
fv_status fv_forward_tables_put(const fv_text_config *cfg, const fv_forward_batch *pass,
                                fv_forward_tables *t, const fv_rope rope[2], fv_arena *arena,
                                fv_workspace *ws);

#endif
