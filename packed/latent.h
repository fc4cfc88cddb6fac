#ifndef FOVEA_PACKED_LATENT_H
#define FOVEA_PACKED_LATENT_H

/* LATENT KV: visual keys and values of a group of layers as coefficients on directions that all
 * requests share (ops.h: attn_latent). The directions belong to the checkpoint (model/latent/latent.h);
 * a request holds coefficients, and a few directions of its own if the checkpoint's do not suffice.
 * With x_j the keys before rotation and the values of token j, of all layers of the group side by side:
 *
 *     z_j = (x_j - mean) P        [R]     P the encoding directions, R of them
 *     x_j ~= mean + z~_j B + u~_j O       B the decoding directions, O the request's own
 *     z~_j[r] = deviation[r] / 32 level_b[code_j[r]]   b = bits[r], 0 to 8; b = 0: 0
 *     u~_j[i] = code_j[i] - 128                        8 bits, i < n_own
 *     O[i, c] = scale[i] (2 code[i, c] - 15)           4 bits; scale of each part of the group
 *
 * level_b are the 2^b levels, ascending integers from -127 to 127, fitted to the distribution of
 * z[r] / deviation[r] in steps of 1/32.
 *
 * KEYS are rebuilt by every step that reads them, in integers, whose sums are exact in any order:
 *
 *     x_j[c] ~= mean[c] + scale[c] sum_r K[c, r] level_b[code_j[r]]     before O
 *     K[c, r] = round(B[r, c] deviation[r] / 32 / scale[c]),  -127 to 127
 *     scale[c] = max_r |B[r, c] deviation[r] / 32| / 127
 *
 * The directions B of keys are always those decoded from K. Values are summed as coefficients, and
 * multiplied by their directions once.
 *
 * CODES. Alternatively, the worker that reads keys rebuilds them once and holds them in 4 bits
 * (`coded`; ops.h: latent_codes), so that steps read codes instead:
 *
 *     x_j[c] ~= mean[c] + sigma[c] s_j (q - 15 / 2)     q = 0 .. 15, to nearest, of x_j[c] above
 *     s_j = 2 / 15 max_c |x_j[c] - mean[c]| / sigma[c]  over a KV head's columns, in f16
 *     sigma[c]^2 = sum_r (B[r, c] deviation[r])^2       0: the column is its mean
 *
 * So a token's codes follow from its coefficients alone: they do not depend on where and when they are
 * made, nor on other tokens.
 *
 * BITS. A token has row_bits bits. Each goes to the direction where it reduces the squared error most
 * (reverse water-filling with whole bits):
 *
 *     argmax_r deviation[r]^2 (e_b - e_b+1)     e_b the mean squared error of b bits at deviation 1
 *
 * `order` lists the directions in the order in which they get bits, so its first row_bits entries give
 * the bits of each, and no request carries a table. Directions with bits are the first ones.
 * With `each_bits`, the first row_bits / each_bits directions have that many bits each
 * instead: PCA with a plain quantizer, the baseline for water-filling.
 *
 * LAYOUT. Tiles of 16 tokens; a tile has row_bits + 8 n_own planes of 16 bits, bit i of a plane
 * is token i's. A direction's planes follow one another, lowest bit first, own directions after the
 * others; bits of missing tokens are 0. So n tokens take 2 (row_bits + 8 n_own) ceil(n / 16) bytes,
 * any tile can be read on its own, and every bit pattern is a valid code. The first layer's keys own
 * the planes; the group's other parts borrow them. A layer with fewer tokens than the first has the
 * first rows of it. Each part has its own numbers of the own directions, ahead of any planes:
 *
 *     scale  f32 [n_own]        code  [n_own, ceil(W / 2)], the lower half of a byte first
 *
 * EXACT TOKEN. A prompt's first token is an attention sink, and may be stored exactly (`exact`).
 * Each part has its W numbers in the part's type, after the own directions. They act as one more
 * direction, the last, on which only that token has a coefficient, 1; its other coefficients, and that
 * of the mean, are 0. Its row, or -1 if it has been dropped, is ahead of the planes, i32 in 64 bytes.
 * It is always read as group 0.
 *
 * Codes of keys come last, head by head in tiles of 16 tokens: [D, 16], the lower half of a byte first,
 * and then the 16 s_j; 0 for missing tokens. They are not sent.
 *
 * TIERS. Directions are in the order of their deviations, own ones last, so the first R2 of them (`n_low`)
 * are a lower rank; rows of group 1 are read with these alone (part.h).
 *
 * Pure functions; any thread. */
#include <string.h>

#include "packed/forms.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FV_LATENT_STEPS = 60 }; /* steps of the relative error, half a decibel each */
enum { FV_LATENT_BITS = 8, FV_LATENT_LEVELS = (2 << FV_LATENT_BITS) - 2, FV_LATENT_MOST = 1024 };
enum { FV_LATENT_OWN = 8 };     /* the most own directions of a request */
enum { FV_LATENT_CODED = 4 };   /* bits of a code of keys */
#define FV_LATENT_UNIT 0.03125f /* a level's step, in deviations */

/* A matrix [W, R] for projecting rows, on the backend's device: `bands` if the engine computes in f32,
 * `rounded` if in bf16; or neither. */
typedef struct fv_latent_columns {
    const float *bands;      /* in bands (below) */
    const uint16_t *rounded; /* its transpose [R, W], in bf16 */
} fv_latent_columns;

/* MEASURES the error of coefficients for a layer's keys or values x [W], without rebuilding them:
 *
 *     ||x - mean - z~ B||^2 = ||x - mean||^2 - 2 c z~^T + z~ G z~^T      c = (x - mean) B^T, G = B B^T
 *
 * Values fitted without weights have B = a P^T, and c is a times their own summand of z. For values fitted
 * with weights, and for keys, whose B is rounded, c is a product of its own. */
typedef struct fv_latent_measure {
    float along;              /* a; 0: use `across` */
    fv_latent_columns across; /* B^T [W, R] */
    const float *gram;        /* G [R, R] */
    const float *passed;      /* B P [R, R], on the host */
} fv_latent_measure;

/* A layer's directions for kernels; arrays are borrowed. R = n_dir. On the backend's device are the arrays
 * that attention reads, `key`, `affine`, `sigma` and `value`, which begins with the mean, as a direction
 * whose coefficient is 1; and `project`, `across` and `gram`. The others are on the host. */
typedef struct fv_latent_layer {
    int32_t n_dir;                /* 1 .. FV_LATENT_MOST */
    const float *deviation;       /* [R] descending */
    const uint16_t *order;        /* [8 R] */
    const int8_t *level;          /* [FV_LATENT_LEVELS] levels of b bits begin at 2^b - 2 */
    const float *error;           /* [FV_LATENT_BITS + 1] e_b */
    float variance;               /* of a whole token; deviation[r]^2 is that of direction r */
    const int8_t *key;            /* K [Hkv * D, fv_latent_line(R)], 0 after R */
    const float *affine;          /* [Hkv * D, 2] mean and scale */
    const float *sigma;           /* [Hkv * D] for codes */
    const float *value;           /* [Hkv, R + 1, D], and FV_PACKED_TILE numbers more */
    const float *encode[2];       /* P of this layer's keys and values, [Hkv * D, R] in bands */
    const float *decode[2];       /* B, [R, Hkv * D]; for keys decoded from K */
    fv_latent_columns project[2]; /* P, from model/latent/device.h */
    fv_latent_measure measure[2]; /* from model/latent/device.h too, except for `along` */
    const float *mean[2];         /* [Hkv * D] */
    const float *offset;          /* [R] mean P, over the whole group */
} fv_latent_layer;

/* Length of a line of K. */
static inline size_t fv_latent_line(int32_t n_dir) { return ((size_t)n_dir + 63) / 64 * 64; }

/* BANDS. P is stored in the order in which products read it: columns in bands of 64, the last may be
 * narrower, and each band is row-major. */
enum { FV_LATENT_BAND = 64 };

/* Index of P[c, r], for W rows and R columns. */
static inline size_t fv_latent_band_at(size_t W, size_t R, size_t c, size_t r) {
    size_t band = FV_LATENT_BAND, first = r / band * band, left = R - first;
    return first * W + c * (left < band ? left : band) + (r - first);
}

/* Computes K, its scales and sigma [W] of a layer's keys: key [W, line], affine [W, 2]. Replaces decode
 * [R, W] by the directions decoded from K. */
void fv_latent_lay_keys(const float *deviation, const float *mean, float *decode, int32_t n_dir,
                        size_t W, int8_t *key, float *affine, float *sigma);

/* Computes order [8 R] from deviations; error [9]: e_0 = 1, e_1, ... */
void fv_latent_order(const float *deviation, int32_t n_dir, const float *error, uint16_t *order);

/* Sets bits [R] of each direction in parts of this shape; returns how many directions have any. */
static inline int32_t fv_latent_bits(const fv_latent_layer *l, const fv_packed_shape *s,
                                     uint8_t *bits) {
    int32_t n = 0, all = FV_LATENT_BITS * l->n_dir;
    memset(bits, 0, (size_t)l->n_dir);
    if (s->latent.each_bits) {
        n = s->latent.row_bits / s->latent.each_bits;
        n = n < l->n_dir ? n : l->n_dir;
        memset(bits, s->latent.each_bits, (size_t)n);
        return n;
    }
    for (int32_t i = 0; i < s->latent.row_bits && i < all; i++) {
        int32_t r = l->order[i];
        bits[r]++;
        n = r >= n ? r + 1 : n;
    }
    return n;
}

/* Number of n directions, own ones included, with which a row is read; low: it is of group 1, and not the
 * exact token. */
static inline size_t fv_latent_read_dirs(const fv_packed_shape *s, size_t n, bool low) {
    size_t n_low = (size_t)s->latent.n_low;
    return low && n_low > 0 && n_low < n ? n_low : n;
}

/* The share of a token's variance that parts of this shape are expected to lose, without own
 * directions: 1 - sum over r of deviation[r]^2 (1 - e_b) / variance. */
double fv_latent_expected(const fv_latent_layer *l, const fv_packed_shape *s);

/* Planes of a tile. */
static inline size_t fv_latent_planes(const fv_packed_shape *s) {
    return (size_t)s->latent.row_bits + FV_LATENT_BITS * (size_t)s->latent.n_own;
}

/* Bytes of an own direction's codes in one part. */
static inline size_t fv_latent_own_line(const fv_packed_shape *s) {
    return (fv_packed_width(s) + 1) / 2;
}

/* Bytes of all own directions in one part. */
static inline size_t fv_latent_own_bytes(const fv_packed_shape *s) {
    return fv_packed_aligned((size_t)s->latent.n_own * (sizeof(float) + fv_latent_own_line(s)));
}

/* Bytes of own directions and the exact token's numbers. */
static inline size_t fv_latent_head_bytes(const fv_packed_shape *s) {
    size_t exact = fv_packed_width(s) * fv_dtype_bytes(s->dtype);
    return fv_latent_own_bytes(s) + (s->latent.exact ? fv_packed_aligned(exact) : 0);
}

/* Bytes, in a part with planes, of the exact token's row. */
static inline size_t fv_latent_row_bytes(const fv_packed_shape *s) {
    return s->latent.exact ? FV_PACKED_ALIGN : 0;
}

/* The planes in `data` of a part that owns them; s: its shape, or that of a part that borrows them. */
static inline uint16_t *fv_latent_plane(const fv_packed_shape *s, const void *data) {
    return (uint16_t *)((uintptr_t)data + fv_latent_head_bytes(s) + fv_latent_row_bytes(s));
}

/* The exact token's row, likewise; -1: there is none. */
static inline int32_t fv_latent_exact(const fv_packed_shape *s, const void *data) {
    return s->latent.exact ? *(const int32_t *)((uintptr_t)data + fv_latent_head_bytes(s)) : -1;
}

/* Bytes that are sent: all but codes. */
static inline size_t fv_latent_sent_bytes(const fv_packed_shape *s) {
    size_t tile = 2 * fv_latent_planes(s);
    size_t planes = fv_packed_aligned(tile * fv_packed_tiles((size_t)s->n));
    return fv_latent_head_bytes(s) + (s->borrows ? 0 : fv_latent_row_bytes(s) + planes);
}

/* Bytes of the codes of a KV head's tile, with their scales. */
static inline size_t fv_latent_coded_tile(const fv_packed_shape *s) {
    return FV_PACKED_TILE * (size_t)s->d_head * FV_LATENT_CODED / 8 +
           FV_PACKED_TILE * sizeof(uint16_t);
}

static inline size_t fv_latent_bytes(const fv_packed_shape *s) {
    size_t tiles = (size_t)s->n_kv * fv_packed_tiles((size_t)s->n);
    return fv_latent_sent_bytes(s) +
           (s->latent.coded ? fv_packed_aligned(tiles * fv_latent_coded_tile(s)) : 0);
}

/* A tile of KV head g in a part with codes; below: its scales. */
static inline uint8_t *fv_latent_coded(const fv_packed_part *p, size_t g, size_t tile) {
    size_t tiles = fv_packed_tiles((size_t)p->shape.n);
    return (uint8_t *)p->data + fv_latent_sent_bytes(&p->shape) +
           (g * tiles + tile) * fv_latent_coded_tile(&p->shape);
}

static inline uint16_t *fv_latent_coded_scale(const fv_packed_part *p, const uint8_t *tile) {
    size_t codes = (size_t)p->shape.d_head * FV_PACKED_TILE * FV_LATENT_CODED / 8;
    return (uint16_t *)((uintptr_t)tile + codes);
}

/* The most bits of a token such that n tokens take no more than `bytes`; 0: not even one bit. */
static inline int32_t fv_latent_row_bits(int64_t bytes, int32_t n) {
    int64_t bits = bytes / FV_PACKED_ALIGN * FV_PACKED_ALIGN / 2;
    bits = n > 0 ? bits / (int64_t)fv_packed_tiles((size_t)n) : 0;
    return bits > FV_LATENT_BITS * FV_LATENT_MOST ? FV_LATENT_BITS * FV_LATENT_MOST : (int32_t)bits;
}

/* The first step i of 1 .. FV_LATENT_STEPS whose relative error 10^(-i / 40), the root of the lost share
 * of variance, is at most `error` > 0; 0: none. */
int32_t fv_latent_step(double error);

/* Sets steps[i - 1] to the fewest bits of a token that are expected to reach step i; 0: no number of bits
 * does. They ascend. */
void fv_latent_steps(const fv_latent_layer *l, const float *error, uint32_t *steps);

/* Encodes coefficients z [n, R] at the nearest levels: `data` has fv_latent_sent_bytes(s) bytes; z becomes
 * the decoded coefficients. Own directions are 0, and no token is exact. FV_EINVAL if one is not finite. */
fv_status fv_latent_write(const fv_latent_layer *l, const fv_packed_shape *s, float *z, void *data);

/* fv_latent_write in pieces: clears `data`, then writes rows [row0, row0 + n), z [n, R]; row0 begins a
 * tile, and several threads may write different tiles. */
void fv_latent_clear(const fv_packed_shape *s, void *data);
fv_status fv_latent_write_rows(const fv_latent_layer *l, const fv_packed_shape *s, int32_t row0,
                               int32_t n, float *z, void *data);

/* Writes coefficients on own directions, afterwards: u [n, n_own], integers from -128 to 127, into a part
 * that does not borrow. */
void fv_latent_write_own(const fv_packed_shape *s, const float *u, void *data);

/* Writes the numbers of the own directions, o [n_own, W], into any part, at the one of 8 scales with the
 * least squared error; o becomes the decoded numbers. */
void fv_latent_write_directions(const fv_packed_shape *s, float *o, void *data);

/* Writes the exact token: its row, into a part that does not borrow; its numbers x [W], into any part. */
void fv_latent_write_row(const fv_packed_shape *s, int32_t row, void *data);
void fv_latent_write_exact(const fv_packed_shape *s, const float *x, void *data);

/* Decodes rows [row0, row0 + n) of a part to m [n, Hkv * D], keys before rotation. */
void fv_latent_read(const fv_packed_part *p, int32_t row0, int32_t n, float *m);

#ifdef __cplusplus
}
#endif
#endif
