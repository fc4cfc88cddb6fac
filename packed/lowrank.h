#ifndef FOVEA_PACKED_LOWRANK_H
#define FOVEA_PACKED_LOWRANK_H

/* FACTORS: the visual keys and values of one layer as low-rank factors, in the form in which they are
 * held, sent and read by kernels (AttentionPack, CVPR 2026; kernels/ops.h: attn_lowrank).
 *
 *     M ~= U B      M [n, Hkv * D] keys or values of n visual tokens, all heads side by side
 *                   U [n, R]       rows: left singular vectors times singular values
 *                   B [R, Hkv * D] basis: right singular vectors, orthonormal rows
 *
 * Rank r < R is the first r columns of U and rows of B. Tokens of low importance are read at rank
 * R2: U is in two tiers, [n, R2] and [n, R - R2], so that unused columns are not read. A
 * tier of values is row-major. A tier of keys is in tiles of 16 rows, each [R, 16]: scores are
 * computed for 16 rows at once, and lanes of missing rows are 0.
 *
 * The basis is stored head by head, each in the order in which products read it: [R, D] for values
 * (o = z B), [D, R] for keys (latent queries are q B^T). So a head is contiguous, and both products
 * are sums of rows weighted by a vector, with independent lanes.
 *
 * KEYS AND ROTATION. The score (Rot(p) q) (Rot(p_j) k_j) depends on p_j through the key. With
 * anchors, row j of M is Rot(p_j - a) k_j, so that q k_j = (B_h Rot(-a) Rot(p) q) u_j, B_h [R, D]
 * the head's columns of B, and one latent query per block and head serves all its rows, exactly.
 * One block with a = 0: keys as the cache holds them (K1); blocks of one row: keys before rotation
 * (K0); between them: K2. (K3, keys before rotation and a latent query for each row and column of
 * an image, needs a rotation that has sections of its own for these, M-RoPE; no checkpoint that
 * fovea serves has one. bench/bench_keys.c measures K0, K1 and K2.)
 *
 * UNCOMPRESSED VALUES. A block of values may have no factors (rank 0): it holds the values themselves,
 * head by head, each [n, D]. Then only keys are factors, and values keep every bit (for text, whose
 * values need a higher rank than its keys).
 *
 * BITS. 16: elements of the KV dtype (F32 if that is F32). 8 and 4: unsigned codes c, decoded as
 *     U of keys      lo[r] + step[r] c                 a pair per column, F32
 *     U of values    (lo[j] + step[j] c) column[r]     a pair per row, F16; column[r] the root of
 *                                                      column r's mean square, F32, so that columns
 *                                                      of all sizes share a row's pair
 *     B              lo[g,r] + step[g,r] c             a pair per KV head and row of B, F16
 * Each is fma(step, c, lo), in f32. Codes of 4 bits: element i of a line is bits 4 (i % 2) of byte
 * i / 2; lines (stored rows of a tier or of a head's basis) begin at a byte.
 *
 * Pure functions; any thread. */
#include "packed/forms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sizes, to the byte ---------------------------------------------------------------- */

/* Offsets of the arrays of a part; an array that it lacks has no bytes. */
typedef struct fv_packed_layout {
    size_t tier[2];      /* [n, R2] and [n, R - R2] elements; keys in tiles */
    size_t pair;         /* of U: keys [R][2] F32; values [n][2] F16 */
    size_t column;       /* values: [R] F32 */
    size_t basis;        /* [Hkv, R, D] elements; keys [Hkv, D, R] */
    size_t basis_pair;   /* [Hkv, R][2] F16 */
    size_t rows;         /* values as rows: [Hkv, n, D] elements */
    size_t bytes;        /* of all */
    size_t stride[2];    /* bytes from row to row of a tier; keys: from tile to tile */
    size_t basis_stride; /* bytes from line to line of the basis */
    size_t basis_head;   /* bytes from head to head */
} fv_packed_layout;

/* Elements per row of a tier. */
static inline size_t fv_packed_tier_rank(const fv_packed_shape *s, int tier) {
    return (size_t)(tier ? s->lowrank.rank - s->lowrank.rank2 : s->lowrank.rank2);
}

/* Bytes from row to row of a tier of values, or from tile to tile of a tier of keys. */
static inline size_t fv_packed_stride(const fv_packed_shape *s, int tier) {
    size_t rank = fv_packed_tier_rank(s, tier);
    if (s->kind == FV_PACKED_V) return fv_packed_row_bytes(s, rank);
    return rank * fv_packed_row_bytes(s, FV_PACKED_TILE);
}

/* Bytes of n rows of a tier. */
static inline size_t fv_packed_tier_bytes(const fv_packed_shape *s, int tier, size_t n) {
    return (s->kind == FV_PACKED_K ? fv_packed_tiles(n) : n) * fv_packed_stride(s, tier);
}

/* Lines of one head's basis, and elements of each. */
static inline size_t fv_packed_basis_lines(const fv_packed_shape *s) {
    return (size_t)(s->kind == FV_PACKED_K ? s->d_head : s->lowrank.rank);
}

static inline size_t fv_packed_basis_line(const fv_packed_shape *s) {
    return (size_t)(s->kind == FV_PACKED_K ? s->lowrank.rank : s->d_head);
}

static inline size_t fv_packed_basis_head_bytes(const fv_packed_shape *s) {
    return fv_packed_basis_lines(s) * fv_packed_row_bytes(s, fv_packed_basis_line(s));
}

static inline size_t fv_packed_pair_bytes(const fv_packed_shape *s) {
    if (s->lowrank.bits == 16) return 0;
    return s->kind == FV_PACKED_K ? (size_t)s->lowrank.rank * 8 : (size_t)s->n * 4;
}

static inline size_t fv_packed_column_bytes(const fv_packed_shape *s) {
    return s->lowrank.bits == 16 || s->kind == FV_PACKED_K ? 0 : (size_t)s->lowrank.rank * 4;
}

static inline size_t fv_packed_basis_bytes(const fv_packed_shape *s) {
    return (size_t)s->n_kv * fv_packed_basis_head_bytes(s);
}

static inline size_t fv_packed_basis_pair_bytes(const fv_packed_shape *s) {
    return s->lowrank.bits == 16 ? 0 : (size_t)s->lowrank.rank * (size_t)s->n_kv * 4;
}

static inline bool fv_packed_is_rows(const fv_packed_shape *s) {
    return s->form == FV_PACKED_LOWRANK && s->lowrank.rank == 0;
}

static inline fv_packed_layout fv_packed_layout_of(const fv_packed_shape *s) {
    fv_packed_layout l;
    for (int p = 0; p < 2; p++) l.stride[p] = fv_packed_stride(s, p);
    l.basis_stride = fv_packed_row_bytes(s, fv_packed_basis_line(s));
    l.basis_head = fv_packed_basis_head_bytes(s);
    l.tier[0] = 0;
    l.tier[1] = fv_packed_aligned(fv_packed_tier_bytes(s, 0, (size_t)s->n));
    l.pair = l.tier[1] + fv_packed_aligned(fv_packed_tier_bytes(s, 1, (size_t)s->n));
    l.column = l.pair + fv_packed_aligned(fv_packed_pair_bytes(s));
    l.basis = l.column + fv_packed_aligned(fv_packed_column_bytes(s));
    l.basis_pair = l.basis + fv_packed_aligned(fv_packed_basis_bytes(s));
    l.rows = l.basis_pair + fv_packed_aligned(fv_packed_basis_pair_bytes(s));
    l.bytes = l.rows + (fv_packed_is_rows(s) ? fv_packed_aligned(fv_packed_raw_bytes(s)) : 0);
    return l;
}

/* Bytes that one step reads: all but tier 1 of n_low rows of group 1. */
static inline size_t fv_packed_read_bytes(const fv_packed_shape *s, int32_t n_low) {
    return fv_packed_tier_bytes(s, 0, (size_t)s->n) +
           fv_packed_tier_bytes(s, 1, (size_t)(s->n - n_low)) + fv_packed_pair_bytes(s) +
           fv_packed_column_bytes(s) + fv_packed_basis_bytes(s) + fv_packed_basis_pair_bytes(s) +
           (fv_packed_is_rows(s) ? fv_packed_raw_bytes(s) : 0);
}

/* C = n HD / (R (n + HD)), the size of a matrix relative to its two factors; compression saves memory if
 * C > 1, that is n > R HD / (HD - R). 0 for no rows. */
static inline double fv_packed_gain(double n, double rank, double width) {
    return n > 0 ? n * width / (rank * (n + width)) : 0;
}

/* Floating-point operations of one query row, two per multiply-add.
 *     keys      2 n_anchor R H D (latent queries) + 2 n R H (scores)
 *     values    2 R H D + 2 H (n R - n_low (R - R2)) */
static inline int64_t fv_packed_flops_k(const fv_packed_shape *s, int32_t n_head,
                                        int32_t n_anchor) {
    int64_t rh = 2 * (int64_t)s->lowrank.rank * n_head;
    return rh * s->d_head * n_anchor + rh * s->n;
}

static inline int64_t fv_packed_flops_v(const fv_packed_shape *s, int32_t n_head, int32_t n_low) {
    int64_t rows =
        (int64_t)s->n * s->lowrank.rank - (int64_t)n_low * (s->lowrank.rank - s->lowrank.rank2);
    return 2 * n_head * ((int64_t)s->lowrank.rank * s->d_head + rows);
}

/* ---- between factors and parts, on the host -------------------------------------------- */

/* Writes factors u [n, R] and basis [R, Hkv * D] as a part's bytes (data: fv_packed_bytes(s)
 * bytes), rounding to nearest. The same numbers give the same bytes. Padding becomes 0. For values as
 * rows, u [n, Hkv * D] is the rows, and basis is not read. */
void fv_packed_write(const fv_packed_shape *s, const float *u, const float *basis, void *data);

/* Decodes rows [row0, row0 + n) of U to u [n, R]. */
void fv_packed_read_u(const fv_packed_part *p, int32_t row0, int32_t n, float *u);

/* Decodes the basis to [R, Hkv * D]. */
void fv_packed_read_basis(const fv_packed_part *p, float *basis);

/* Widens rows [row0, row0 + n) of values that are rows to v [n, Hkv * D]. */
void fv_packed_read_rows(const fv_packed_part *p, int32_t row0, int32_t n, float *v);

#ifdef __cplusplus
}
#endif
#endif
