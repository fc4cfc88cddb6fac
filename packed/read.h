#ifndef FOVEA_PACKED_READ_H
#define FOVEA_PACKED_READ_H

/* Decodes packed blocks (lowrank.h, codes.h, merged.h) to f32, on the host.
 *
 * A code takes one fma (and one product for values), element by element: compilers vectorize the loops,
 * and every path gets the same bits. */
#include <math.h>

#include "common/convert.h"
#include "packed/codes.h"
#include "packed/lowrank.h"

/* A block and the addresses of its arrays. */
typedef struct packed_view {
    fv_packed_shape s;
    fv_packed_layout l;
    const char *data;
} packed_view;

static inline packed_view packed_view_of(const fv_packed_part *p) {
    packed_view v = {p->shape, fv_packed_layout_of(&p->shape), (const char *)p->data};
    return v;
}

/* Converts the first n codes of a row to f32. */
static inline void packed_codes(const uint8_t *__restrict row, uint8_t bits, size_t n,
                                float *__restrict y) {
    if (bits == 8) {
        for (size_t i = 0; i < n; i++) y[i] = (float)row[i];
        return;
    }
    for (size_t i = 0; i < n / 2; i++) {
        y[2 * i] = (float)(row[i] & 15);
        y[2 * i + 1] = (float)(row[i] >> 4);
    }
    if (n % 2) y[n - 1] = (float)(row[n / 2] & 15);
}

static inline int packed_code(const uint8_t *row, uint8_t bits, size_t i) {
    return bits == 8 ? row[i] : row[i / 2] >> i % 2 * 4 & 15;
}

static inline void packed_pair_f16(const char *p, float *lo, float *step) {
    uint16_t pair[2];
    memcpy(pair, p, sizeof pair);
    *lo = f32_of_f16(pair[0]);
    *step = f32_of_f16(pair[1]);
}

/* Decodes row j of keys' U in one tier to y [fv_packed_tier_rank]. */
static inline void packed_k_row(const packed_view *v, int tier, size_t j, float *__restrict y) {
    size_t n = fv_packed_tier_rank(&v->s, tier), r0 = tier ? (size_t)v->s.lowrank.rank2 : 0;
    size_t bytes = fv_packed_row_bytes(&v->s, FV_PACKED_TILE), i = j % FV_PACKED_TILE;
    const char *line = v->data + v->l.tier[tier] + j / FV_PACKED_TILE * v->l.stride[tier];
    const float *pair = (const float *)(v->data + v->l.pair) + 2 * r0;
    for (size_t r = 0; r < n; r++, line += bytes)
        y[r] = v->s.lowrank.bits == 16
                   ? widened(line, v->s.dtype, i)
                   : fmaf(pair[2 * r + 1],
                          (float)packed_code((const uint8_t *)line, v->s.lowrank.bits, i),
                          pair[2 * r]);
}

/* Decodes row j of values' U in one tier to y [fv_packed_tier_rank]. */
static inline void packed_v_row(const packed_view *v, int tier, size_t j, float *__restrict y) {
    const char *row = v->data + v->l.tier[tier] + j * v->l.stride[tier];
    size_t n = fv_packed_tier_rank(&v->s, tier), r0 = tier ? (size_t)v->s.lowrank.rank2 : 0;
    if (v->s.lowrank.bits == 16) {
        widen_row(row, v->s.dtype, n, y);
        return;
    }
    const float *column = (const float *)(v->data + v->l.column) + r0;
    float lo, step;
    packed_codes((const uint8_t *)row, v->s.lowrank.bits, n, y);
    packed_pair_f16(v->data + v->l.pair + j * 4, &lo, &step);
    for (size_t i = 0; i < n; i++) y[i] = fmaf(step, y[i], lo) * column[i];
}

/* Uncompressed values: the address of row j of KV head g, and its numbers y [D]. */
static inline const char *packed_row_at(const packed_view *v, size_t g, size_t j) {
    size_t row = (size_t)v->s.d_head * fv_dtype_bytes(v->s.dtype);
    return v->data + v->l.rows + (g * (size_t)v->s.n + j) * row;
}

static inline void packed_row(const packed_view *v, size_t g, size_t j, float *__restrict y) {
    widen_row(packed_row_at(v, g, j), v->s.dtype, (size_t)v->s.d_head, y);
}

/* Address of line x of KV head g's basis: for values row x, for keys the coefficients of element x
 * of a head. */
static inline const char *packed_basis_at(const packed_view *v, size_t g, size_t x) {
    return v->data + v->l.basis + g * v->l.basis_head + x * v->l.basis_stride;
}

/* B[r, g, d]. */
static inline float packed_basis_number(const packed_view *v, size_t g, size_t r, size_t d) {
    bool key = v->s.kind == FV_PACKED_K;
    const char *line = packed_basis_at(v, g, key ? d : r);
    if (v->s.lowrank.bits == 16) return widened(line, v->s.dtype, key ? r : d);
    float lo, step;
    packed_pair_f16(v->data + v->l.basis_pair + (g * (size_t)v->s.lowrank.rank + r) * 4, &lo,
                    &step);
    return fmaf(step, (float)packed_code((const uint8_t *)line, v->s.lowrank.bits, key ? r : d),
                lo);
}

/* ---- codes and directions (packed/codes.h, merged.h) ----------------------------------- */

typedef struct codes_view {
    fv_packed_shape s;
    fv_codes_layout l;
    const char *data;
    const char *code; /* codes or directions: here, or in the part that it borrows from */
} codes_view;

static inline codes_view codes_view_of(const fv_packed_part *p) {
    const char *data = (const char *)p->data, *base = p->base ? (const char *)p->base : data;
    fv_codes_layout l = fv_codes_layout_of(&p->shape);
    codes_view v = {p->shape, l, data, base + l.code};
    return v;
}

/* The codes of row j of head g: its row, or for keys its tile. */
static inline const uint8_t *codes_at(const codes_view *v, size_t g, size_t j) {
    size_t line = v->s.kind == FV_PACKED_K ? j / FV_PACKED_TILE : j;
    return (const uint8_t *)v->code + g * v->l.head + line * v->l.stride;
}

/* lo and step of a line: a channel of keys, a row of values. */
static inline const float *codes_pair(const codes_view *v, size_t line) {
    return (const float *)(v->data + v->l.pair) + 2 * line;
}

/* Index of the norm of row j of head g. */
static inline size_t merged_norm_at(const fv_packed_shape *s, size_t g, size_t j) {
    return g * fv_packed_tiles((size_t)s->n) * FV_PACKED_TILE + j;
}

/* The norms of head g from row j on. */
static inline const float *merged_norms(const codes_view *v, size_t g, size_t j) {
    return (const float *)(v->data + v->l.pair) + merged_norm_at(&v->s, g, j);
}

/* Outliers of row j are [*begin, the result). */
static inline uint32_t codes_outliers(const codes_view *v, size_t j, uint32_t *begin) {
    const uint32_t *first = (const uint32_t *)(v->data + v->l.first);
    bool some = fv_codes_n_outlier(&v->s) > 0;
    *begin = some ? first[j] : 0;
    return some ? first[j + 1] : 0;
}

/* Puts row j's outliers of head g into y, with stride ld. */
static inline void codes_put_outliers(const codes_view *v, size_t g, size_t j, float *y,
                                      size_t ld) {
    const uint16_t *channel = (const uint16_t *)(v->data + v->l.channel);
    size_t unit = fv_codes_unit(&v->s), places = (size_t)v->s.d_head / unit; /* of a head */
    uint32_t i, end = codes_outliers(v, j, &i);
    for (uint32_t top = end; i < top;) { /* finds the first that is not of an earlier head */
        uint32_t mid = i + (top - i) / 2;
        if (channel[mid] < g * places)
            i = mid + 1;
        else
            top = mid;
    }
    for (; i < end && channel[i] < (g + 1) * places; i++)
        for (size_t d = 0, at = (channel[i] - g * places) * unit; d < unit; d++)
            y[(at + d) * ld] = widened(v->data + v->l.value, v->s.dtype, i * unit + d);
}

/* Decodes row j of head g to y [D]. */
static inline void codes_row(const codes_view *v, size_t g, size_t j, float *__restrict y) {
    const uint8_t *at = codes_at(v, g, j);
    size_t D = (size_t)v->s.d_head, tile = fv_packed_row_bytes(&v->s, FV_PACKED_TILE);
    if (v->s.form == FV_PACKED_MERGED) {
        float norm = *merged_norms(v, g, j);
        bool key = v->s.kind == FV_PACKED_K;
        for (size_t d = 0; d < D; d++)
            y[d] = norm * (key ? widened(at + d * tile, v->s.dtype, j % FV_PACKED_TILE)
                               : widened(at, v->s.dtype, d));
    } else if (v->s.kind == FV_PACKED_K) {
        const float *pair = codes_pair(v, g * D);
        for (size_t d = 0; d < D; d++, at += tile, pair += 2)
            y[d] =
                fmaf(pair[1], (float)packed_code(at, v->s.codes.bits, j % FV_PACKED_TILE), pair[0]);
    } else if (v->s.codes.bits == 16) {
        widen_row(at, v->s.dtype, D, y);
    } else {
        const float *pair = codes_pair(v, j);
        packed_codes(at, v->s.codes.bits, D, y);
        for (size_t d = 0; d < D; d++) y[d] = fmaf(pair[1], y[d], pair[0]);
    }
    codes_put_outliers(v, g, j, y, 1);
}

#endif
