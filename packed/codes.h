#ifndef FOVEA_PACKED_CODES_H
#define FOVEA_PACKED_CODES_H

/* CODES: keys or values of one layer with each number as 8 or 4 bits, except for a few outliers that
 * are stored exactly (dense and sparse, KVQuant, arXiv 2401.18079; ops.h: attn_quantized).
 *
 *     m[j, c] ~= fma(step, q, lo)     M [n, W] of n tokens, W = Hkv * D channels of all heads; q =
 *                                     0 .. 2^bits - 1, to nearest
 *     m[j, c]  = as stored            where it is an outlier
 *
 * Keys have a pair (lo, step) for each channel over all tokens, values one for each token over all
 * channels, F32: lo and lo + (2^bits - 1) step are the least and the largest number of that line
 * without its outliers. A line has the same number of outliers at both ends,
 *
 *     ceil(share / 2 * (length - 1))  each: those beyond the percentiles 100 share / 2 and
 *                                     100 - 100 share / 2 with linear interpolation
 *
 * so sizes do not depend on data. KVQuant has non-uniform codes, fitted beforehand; these are
 * uniform. Keys are rotated by their distance to their token's anchor (part.h); KVQuant
 * quantizes them before rotation.
 *
 * Values beside coded keys may stay uncompressed: with 16 bits a row is D numbers of dtype, and there
 * are no pairs and no outliers.
 *
 * Layout: a head of keys is in tiles of 16 tokens, each [D, 16]: scores are computed for 16 tokens
 * at once, and lanes of missing tokens are 0. A head of values is row-major. Lines of codes begin
 * at a byte; with 4 bits, element i of a line is bits 4 (i % 2) of byte i / 2. Outliers are ordered
 * by token, then by channel; the code in their place is 0.
 *
 * Directions shared by two layers have the same layout (packed/merged.h): the functions below serve
 * both forms, except those that quantize.
 *
 * Pure functions; any thread. */
#include "packed/forms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Offsets of the arrays of a part; an array that it lacks has no bytes. */
typedef struct fv_codes_layout {
    size_t code;    /* keys [Hkv, tiles, D, 16], values [Hkv, n, D] */
    size_t pair;    /* lo and step: keys [W][2], values [n][2], F32; norms [Hkv, tiles * 16] F32 */
    size_t first;   /* [n + 1] U32: outliers of row j are those from first[j] to first[j + 1] */
    size_t channel; /* [n_outlier] U16; of exact vectors, their head */
    size_t value;   /* [n_outlier, unit] of dtype */
    size_t bytes;   /* of all */
    size_t stride;  /* bytes from row to row of a head; of keys, from tile to tile */
    size_t head;    /* bytes from head to head */
} fv_codes_layout;

/* Number of outliers, or of exact vectors. */
static inline int32_t fv_codes_n_outlier(const fv_packed_shape *s) {
    return s->form == FV_PACKED_MERGED ? s->merged.n_exact : s->codes.n_outlier;
}

/* Numbers of an outlier: 1, or a vector's D. */
static inline size_t fv_codes_unit(const fv_packed_shape *s) {
    return s->form == FV_PACKED_MERGED ? (size_t)s->d_head : 1;
}

static inline size_t fv_codes_pair_bytes(const fv_packed_shape *s) {
    if (s->form == FV_PACKED_MERGED)
        return (size_t)s->n_kv * fv_packed_tiles((size_t)s->n) * FV_PACKED_TILE * 4;
    if (s->codes.bits == 16) return 0;
    return (s->kind == FV_PACKED_K ? fv_packed_width(s) : (size_t)s->n) * 8;
}

static inline fv_codes_layout fv_codes_layout_of(const fv_packed_shape *s) {
    bool key = s->kind == FV_PACKED_K;
    size_t n = (size_t)s->n, D = (size_t)s->d_head, out = (size_t)fv_codes_n_outlier(s);
    fv_codes_layout l;
    l.code = 0;
    l.stride = key ? D * fv_packed_row_bytes(s, FV_PACKED_TILE) : fv_packed_row_bytes(s, D);
    l.head = (key ? fv_packed_tiles(n) : n) * l.stride;
    l.pair = s->borrows ? 0 : fv_packed_aligned((size_t)s->n_kv * l.head);
    l.first = l.pair + fv_packed_aligned(fv_codes_pair_bytes(s));
    l.channel = l.first + fv_packed_aligned(out ? (n + 1) * 4 : 0);
    l.value = l.channel + fv_packed_aligned(out * 2);
    l.bytes = l.value + fv_packed_aligned(out * fv_codes_unit(s) * fv_dtype_bytes(s->dtype));
    return l;
}

/* Outliers at each end of a line of `length` numbers. */
static inline int32_t fv_codes_outliers(double share, int32_t length) {
    double n = share / 2 * (length - 1) - 1e-9; /* shares are not exact in binary */
    return n > 0 ? (int32_t)n + 1 : 0;
}

/* Outliers of a whole part: lines of keys are channels, lines of values rows. */
static inline int64_t fv_codes_all_outliers(const fv_packed_shape *s, double share) {
    int32_t width = (int32_t)fv_packed_width(s);
    bool key = s->kind == FV_PACKED_K;
    return 2 * (int64_t)(key ? width : s->n) * fv_codes_outliers(share, key ? s->n : width);
}

/* fv_packed_check of codes and of directions: what both must have. */
fv_status fv_codes_check(const fv_packed_shape *s, const char *what);

/* fv_packed_format.check_data of both forms: the outliers' rows and channels are in range and order. */
fv_status fv_codes_check_outliers(const fv_packed_part *p);

/* Writes m [n, W] as a block's bytes (data: fv_packed_bytes(s) bytes on the host). Every line has
 * s->n_outlier outliers. The same numbers give the same bytes; padding is 0. *error:
 * ||M - M~|| / ||M||, where M~ is the decoded matrix; 0 for zeros. FV_EINVAL when a number is not
 * finite, or an outlier not representable in `dtype`. */
fv_status fv_codes_write(const fv_packed_shape *s, const float *m, void *data, double *error);

/* Decodes rows [row0, row0 + n) to m [n, W]. */
void fv_codes_read(const fv_packed_part *p, int32_t row0, int32_t n, float *m);

/* Number of outliers of rows idx[0 .. n). */
int32_t fv_codes_count(const fv_packed_part *p, const int32_t *idx, int32_t n);

/* fv_packed_format.keep of both forms. */
void fv_codes_keep(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst);

#ifdef __cplusplus
}
#endif
#endif
