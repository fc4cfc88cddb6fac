#ifndef FOVEA_KERNELS_CUDA_LATENT_H
#define FOVEA_KERNELS_CUDA_LATENT_H

/* The input of the kernels of attention on coefficients (packed/latent.h): a call's sequences in one
 * table, like that of attention.h. C and C++. */
#include "kernels/cuda/cuda.h"
#include "packed/latent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys or values: the request's own directions, the exact token, and the number of directions with which
 * rows of group 1 are read. */
typedef struct fv_cuda_latent_part {
    const char *own;
    const char *exact; /* NULL: there is none */
    int32_t n_low;
} fv_cuda_latent_part;

/* Consecutive query rows of one sequence. */
typedef struct fv_cuda_latent_seq {
    fv_cuda_latent_part k, v;
    /* Directions of the checkpoint, from fv_latent_layer. */
    const int8_t *key;
    const float *affine, *sigma, *value;
    uint8_t *codes;               /* of keys, the first tile; NULL: keys are rebuilt */
    int32_t coded_tile;           /* bytes of a tile */
    const uint16_t *plane;        /* of the first tile */
    const int32_t *exact;         /* which row is exact; NULL: none */
    const int32_t *first, *valid; /* fv_packed_rows */
    const float *cos, *sin;
    const uint8_t *group;
    float *score; /* fv_packed_seq; score_from: the first row whose scores the caller wants */
    int32_t score_from, score_rows, score_ld;
    int64_t held;         /* offset of its scores in scratch, [H, n_rows, ld] */
    int32_t ld;           /* n, up to whole blocks of FV_KV_BLOCK */
    int32_t row0, n_rows; /* rows of q and o */
    int32_t n, n_anchor;  /* rows of the part */
    int32_t planes;       /* of a tile */
    int32_t line;         /* numbers of a line of `key` */
    int32_t n_dir, n_all; /* directions that have bits; all of the layer */
    int32_t n_own;        /* directions of the request */
    int32_t own_line;     /* bytes of an own direction in a part */
    int32_t type;         /* fv_dtype of exact tokens */
    /* Offsets in the table: uint16_t [n_dir + 1], the first plane of each direction in a tile; float
     * [n_all]; int8_t [FV_LATENT_LEVELS] */
    uint32_t bits, deviation, level;
} fv_cuda_latent_seq;

/* Item x of a sequence: a block of FV_KV_BLOCK rows, or FV_CUDA_LATENT_TILE query vectors of a KV head. */
typedef struct fv_cuda_latent_item {
    int32_t seq, x;
} fv_cuda_latent_item;

enum { FV_CUDA_LATENT_TILE = 16 };

/* The table starts with this; its arrays are at these offsets. */
typedef struct fv_cuda_latent_table {
    int32_t n_block, n_tile;
    uint32_t seq, block, tile;
} fv_cuda_latent_table;

/* The kernels' argument. */
typedef struct fv_cuda_latent {
    const char *table; /* fv_cuda_latent_table, on the device */
    const float *q;
    float *o, *lse; /* lse or NULL */
    float *held;    /* scores, in scratch */
    int32_t ldq, ldo, ldl;
    int32_t n_head, n_kv, d_head;
    float scale;
} fv_cuda_latent;

/* The number of items for the grids, the number of scores, and the most coefficients of a row. */
typedef struct fv_cuda_latent_size {
    int32_t n_block, n_tile, n_sum;
    int64_t n_score;
} fv_cuda_latent_size;

/* attn_latent.cu */
fv_status fv_cuda_latent_attend(fv_cuda *c, fv_cuda_latent *call, const fv_cuda_latent_size *size);
/* Makes the codes of the table's blocks. */
fv_status fv_cuda_latent_code(fv_cuda *c, const fv_cuda_latent *call,
                              const fv_cuda_latent_size *size);

#ifdef __cplusplus
}
#endif
#endif
