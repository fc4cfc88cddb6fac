#ifndef FOVEA_KERNELS_CUDA_PACKED_H
#define FOVEA_KERNELS_CUDA_PACKED_H

/* The input of the kernels of attention in rank space: a call's sequences in one table, like that of
 * attention.h. C and C++. */
#include "kernels/cuda/cuda.h"
#include "packed/lowrank.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A factor pair and the addresses of its arrays. */
typedef struct fv_cuda_packed_part {
    const char *data;
    fv_packed_shape s;
    fv_packed_layout l;
} fv_cuda_packed_part;

typedef struct fv_cuda_packed_seq {
    fv_cuda_packed_part k, v;
    const int32_t *first, *valid; /* fv_packed_rows */
    const float *cos, *sin;
    const uint8_t *group;
    float *score; /* fv_packed_seq */
    int32_t score_rows, score_ld;
    int32_t row0, n_rows, n, n_anchor;
    int32_t n_latent; /* anchor blocks that have latent queries of their own: 1 without angles */
    int32_t n_split;  /* splits of its rows */
    int32_t vectors;  /* n_rows * H, up to whole tiles of 16 */
    int32_t latent;   /* offset among the latent queries */
    int32_t part;     /* offset among the splits' results */
} fv_cuda_packed_seq;

/* SPLIT: rows of a split, counted from the block's first. LATENTS: latent queries of an item. GRANULE: rows
 * that a warp loads at a time. */
enum { FV_CUDA_PACKED_SPLIT = 512, FV_CUDA_LATENTS = 64, FV_CUDA_GRANULE = 32 };

/* Kinds of items; each item takes a block of threads. */
typedef enum fv_cuda_work {
    FV_WORK_ROW = 0, /* a query row */
    FV_WORK_LATENT,  /* FV_CUDA_LATENTS latent queries of a KV head */
    FV_WORK_SPLIT,   /* FV_CUDA_PACKED_SPLIT rows of the block */
    FV_N_WORK
} fv_cuda_work;

/* Item x of a sequence. */
typedef struct fv_cuda_packed_item {
    int32_t seq, x;
} fv_cuda_packed_item;

/* The table starts with this; its arrays are at these offsets. */
typedef struct fv_cuda_packed_table {
    int32_t n_item[FV_N_WORK];
    uint32_t seq, item[FV_N_WORK];
} fv_cuda_packed_table;

/* The kernels of a sequence: in the canonical order, or on tensor cores for factors in bf16 or of 8 or 4
 * bits; ODD where a rank is no multiple of 8. The choice depends on the sequence alone. */
typedef enum fv_cuda_packed_form {
    FV_FORM_EXACT = 0,
    FV_FORM_BF16,
    FV_FORM_8,
    FV_FORM_4,
    FV_FORM_BF16_ODD,
    FV_FORM_8_ODD,
    FV_FORM_4_ODD,
    FV_N_FORM
} fv_cuda_packed_form;

/* The kernels' argument. */
typedef struct fv_cuda_packed {
    const char *table; /* fv_cuda_packed_table, on the device */
    const float *q;
    float *o, *lse; /* lse or NULL */
    int32_t ldq, ldo, ldl;
    int32_t n_head, n_kv, d_head;
    float scale;
} fv_cuda_packed;

/* The number of items for the grids, and of vectors for the scratch of latent queries and of splits'
 * results. */
typedef struct fv_cuda_packed_size {
    int32_t n_item[FV_N_WORK];
    int32_t rank_k, rank_v, vectors; /* the largest of any sequence */
    int32_t bytes;                   /* the most bytes of FV_CUDA_GRANULE rows of both factors */
    int64_t n_latent, n_part;
} fv_cuda_packed_size;

/* packed_exact.cu */
fv_status fv_cuda_packed_exact(fv_cuda *c, const fv_cuda_packed *call,
                               const fv_cuda_packed_size *size);

/* packed_tiled.cu: factors in bf16 or codes; ranks are at most 128, heads multiples of 16, at most
 * 256. */
fv_status fv_cuda_packed_tiled(fv_cuda *c, const fv_cuda_packed *call,
                               const fv_cuda_packed_size *size, fv_cuda_packed_form form);

#ifdef __cplusplus
}
#endif
#endif
