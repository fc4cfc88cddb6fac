#ifndef FOVEA_PACKED_PART_H
#define FOVEA_PACKED_PART_H

/* A PACKED PART: the visual keys or values of one layer in a form that is smaller than their rows,
 * in one piece of memory. There are four forms; packed/forms.h has a table of them:
 *
 *   low-rank factors                        packed/lowrank.h
 *   codes of each number                    packed/codes.h
 *   directions that two layers share        packed/merged.h
 *   coefficients on the checkpoint's        packed/latent.h
 *   directions
 *
 * A layer's keys and values have the same form and the same rows.
 *
 *   fv_packed_part   keys or values; several layers may share one of keys (lazy blocks), while
 *                    values are each layer's own
 *   fv_packed_rows   the prompt tokens of the rows; shared by a layer's keys and values
 *
 * ANCHORS. Rows are divided into blocks; a block has an anchor position a, and its keys are packed
 * rotated by their distance to it: row j is Rot(p_j - a) k_j. One block with a = 0: keys as the
 * cache holds them; blocks of one row: keys before rotation. Values do not rotate.
 *
 * ORDER OF ROWS. Rows are ordered by anchor block, and inside a block by rank, best first. Lowering a
 * block's number of valid rows drops its last rows; nothing moves.
 *
 * A part holds no pointers: its memory is one piece, with arrays at offsets that follow from the shape,
 * each a multiple of 64 bytes. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/dtype.h"
#include "common/status.h"

enum { FV_PACKED_ALIGN = 64, FV_PACKED_TILE = 16 };

/* The most bytes that a store takes for a packed block, and for a set of rows, besides their arrays; for
 * bounds computed without a store (kv/packed.c checks them). */
enum { FV_PACKED_BLOCK_FIXED = 640, FV_PACKED_SET_FIXED = 256 };

typedef enum fv_packed_kind { FV_PACKED_K = 0, FV_PACKED_V } fv_packed_kind;

typedef enum fv_packed_form {
    FV_PACKED_LOWRANK = 0,
    FV_PACKED_QUANTIZED,
    FV_PACKED_MERGED,
    FV_PACKED_LATENT,
    FV_N_PACKED_FORM
} fv_packed_form;

/* The fields that each form adds to the shape of a part. */
typedef struct fv_lowrank_shape {
    /* 1 <= rank2 <= rank: rows of group 1 are read at rank2; both 0: values as rows, of 16 bits */
    int32_t rank, rank2;
    uint8_t bits; /* of a number of a factor: 16, 8 or 4 */
} fv_lowrank_shape;

typedef struct fv_codes_shape {
    int32_t n_outlier; /* numbers that are stored exactly */
    uint8_t bits;      /* of a code: 8 or 4; values beside coded keys also 16: they stay rows */
} fv_codes_shape;

typedef struct fv_merged_shape {
    int32_t n_exact; /* vectors of D that are stored exactly */
} fv_merged_shape;

typedef struct fv_latent_shape {
    int32_t row_bits;  /* bits of a token's coefficients */
    uint8_t each_bits; /* bits of each coefficient, 1 to 8; 0: row_bits are spread by variance */
    int32_t n_low;     /* directions with which rows of group 1 are read; 0: all */
    int32_t n_own;     /* directions of the request itself */
    bool exact;        /* one token is stored exactly */
    bool coded;        /* keys: the rebuilt keys are held too, in codes */
} fv_latent_shape;

/* The layout of a part's bytes follows from this. `form` tells which member of the union is set. */
typedef struct fv_packed_shape {
    fv_packed_form form;
    fv_packed_kind kind;
    int32_t n;            /* stored rows */
    int32_t n_kv, d_head; /* a row is Hkv * D wide */
    fv_dtype dtype;       /* of numbers that are not coded */
    bool borrows;         /* directions of merged rows, or coefficients: they are in another part */
    union {
        fv_lowrank_shape lowrank;
        fv_codes_shape codes;
        fv_merged_shape merged;
        fv_latent_shape latent;
    };
} fv_packed_shape;

/* `data` is an address on the backend's device, aligned to 64 bytes, of fv_packed_bytes(shape)
 * bytes; borrowed. */
typedef struct fv_packed_part {
    fv_packed_shape shape;
    void *data;
    const void *base; /* `data` of the part that it borrows from; NULL: it does not borrow */
    const struct fv_latent_layer *latent; /* latents: the layer's directions, on the host */
} fv_packed_part;

/* The rows of a packed layer; arrays are borrowed, at addresses on the backend's device. */
typedef struct fv_packed_rows {
    int32_t n, n_anchor;
    const int32_t *pos;   /* [n] positions in the prompt */
    const int32_t *first; /* [n_anchor + 1] the first row of each block; first[n_anchor] = n */
    const int32_t *valid; /* [n_anchor] how many of each block's first rows are valid; NULL: all */
    /* Angles of the anchors' positions (for latents, of the tokens' own), F32; NULL: all are 0. For
     * factors [n_anchor, D / 2]; for other forms token by token, in tiles like keys:
     * [tiles, D / 2, FV_PACKED_TILE] */
    const float *cos, *sin;
    /* [n] 0: read at full rank, 1: at R2; NULL: all 0. Factors and latents only */
    const uint8_t *group;
} fv_packed_rows;

static inline size_t fv_packed_aligned(size_t bytes) {
    return (bytes + FV_PACKED_ALIGN - 1) / FV_PACKED_ALIGN * FV_PACKED_ALIGN;
}

/* Tiles of n rows. */
static inline size_t fv_packed_tiles(size_t n) { return (n + FV_PACKED_TILE - 1) / FV_PACKED_TILE; }

/* Bits of a stored number: of a factor, a code or a direction. */
static inline uint8_t fv_packed_bits(const fv_packed_shape *s) {
    if (s->form == FV_PACKED_LOWRANK) return s->lowrank.bits;
    return s->form == FV_PACKED_QUANTIZED ? s->codes.bits : 16;
}

/* Bytes of a row of n stored numbers. */
static inline size_t fv_packed_row_bytes(const fv_packed_shape *s, size_t n) {
    uint8_t bits = fv_packed_bits(s);
    return bits == 4 ? (n + 1) / 2 : bits == 8 ? n : n * fv_dtype_bytes(s->dtype);
}

static inline size_t fv_packed_width(const fv_packed_shape *s) {
    return (size_t)s->n_kv * (size_t)s->d_head;
}

/* Bytes of the same rows uncompressed, of one kind. */
static inline size_t fv_packed_raw_bytes(const fv_packed_shape *s) {
    return (size_t)s->n * fv_packed_width(s) * fv_dtype_bytes(s->dtype);
}

#endif
