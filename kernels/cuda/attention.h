#ifndef FOVEA_KERNELS_CUDA_ATTENTION_H
#define FOVEA_KERNELS_CUDA_ATTENTION_H

/* The input of attention's kernels: a call's sequences, runs and block addresses, flattened into one
 * table that is copied to the device at once.
 *
 * Kernels get the table's address and find everything in it, even the number of items: a grid may be
 * larger than the call, and a captured graph may run again with another call's table in the same
 * place. C and C++. */
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys of a split: sequences with few query rows attend to a segment in splits, counted from its start,
 * so a row's bits do not depend on what else is in the call. */
enum { FV_CUDA_SPLIT = 2 * FV_KV_BLOCK };

/* A run: `len` rows, whose addresses begin at number `block`, and positions at `position`. */
typedef struct fv_cuda_table {
    int32_t len, block, position; /* position: only with a window */
} fv_cuda_table;

/* A sequence; offsets are into the table's arrays, -1 where the call has none. */
typedef struct fv_cuda_attn_seq {
    int32_t row0, n_rows, n_seg, n_first;
    int32_t run;         /* [Hkv, n_seg] */
    int32_t masked_tail; /* [n_seg, n_rows] */
    int32_t window_from; /* [n_rows] */
    int32_t share;       /* [n_rows], among the bytes */
    float n;
    int32_t split, n_split; /* first split, number of splits */
    int32_t part;           /* offset of the splits' results, in units of (row, head) */
} fv_cuda_attn_seq;

/* An item: query rows [row0, row0 + n_row) of a sequence, and all keys that they see. */
typedef struct fv_cuda_attn_rows {
    int32_t seq, row0, n_row;
} fv_cuda_attn_rows;

/* An item: all query rows of a sequence, and keys [j0, j0 + FV_CUDA_SPLIT) of a segment, which are split
 * number `split` of the sequence. */
typedef struct fv_cuda_attn_split {
    int32_t seq, seg, j0, split;
} fv_cuda_attn_split;

/* fv_score_sum for kernels. */
typedef struct fv_cuda_score_sum {
    const float *weight;
    float *sum;
    int32_t seq, n_row, n_kind, ld, column[FV_ATTN_MAX_SEG];
    int32_t kind; /* [n_row], among the bytes; -1: none */
    float n;
    int32_t low, head_max, fresh;
} fv_cuda_score_sum;

/* An item of score_sums: a KV block of a segment. */
typedef struct fv_cuda_sum_item {
    int32_t sum, seg, j0;
} fv_cuda_sum_item;

/* The table starts with this; its arrays are at these offsets. */
typedef struct fv_cuda_attn_table {
    int32_t n_rows, n_split, n_few, n_item; /* of rows, split, few, item */
    uint32_t seq, run, block, masked_tail, window_from, position, bytes;
    uint32_t rows, split, few; /* few [n_few] int32: the sequences that are split */
    uint32_t sum, item;
} fv_cuda_attn_table;

/* The kernels' argument. */
typedef struct fv_cuda_attn {
    const char *table; /* fv_cuda_attn_table, on the device */
    const float *q;    /* [M, ldq] */
    float *o;          /* [M, ldo] */
    float *lse;        /* [M, ldl] or NULL */
    int32_t ldq, ldo, ldl;
    int32_t n_head, n_kv, d_head;
    fv_dtype kv_dtype;
    float scale;
} fv_cuda_attn;

/* How a call is cut into items. */
typedef struct fv_cuda_attn_cut {
    int32_t rows; /* query rows of an item */
    int32_t few;  /* sequences of at most this many rows are split along their keys instead */
    const fv_score_sums_args *sums; /* the sums over the call's scores; NULL: none */
} fv_cuda_attn_cut;

/* The number of items for the grids, and the scratch that splits need, in units of (row, head). Numbers
 * that grow with the keys are rounded up (issue.h). */
typedef struct fv_cuda_attn_size {
    int32_t n_rows, n_split, n_few, n_item;
    int64_t n_part;
} fv_cuda_attn_size;

/* Flattens a call into the staging ring and sends it. */
fv_status fv_cuda_attn_send(fv_cuda *c, const fv_attn_args *a, const fv_cuda_attn_cut *cut,
                            fv_cuda_attn *out, fv_cuda_attn_size *size);

/* Whether this call may take the tensor cores: keys and values in 16 bits, heads that fill tiles and shared memory
 * that they fit in. In attention_tiled.cu. */
bool fv_cuda_attn_is_tiled(const fv_cuda *c, const fv_attn_args *a);

/* attention_exact.cu */
fv_status fv_cuda_attention_exact(fv_cuda *c, const fv_attn_args *a);

/* attention_tiled.cu: calls that fv_cuda_attn_is_tiled; those with f16 go on to attention_tiled_f16.cu. */
fv_status fv_cuda_attention_tiled(fv_cuda *c, const fv_attn_args *a);
fv_status fv_cuda_attention_tiled_f16(fv_cuda *c, const fv_attn_args *a);

#ifdef __cplusplus
}
#endif
#endif
