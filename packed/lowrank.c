/* Writes factors as the bytes of a packed part, and reads them back, on the host. Quantizes to nearest
 * between the least and the largest number of a group; the pair is rounded first, and codes are chosen for
 * the rounded pair. Runs on the thread that compacts or unpacks blocks; decode steps read parts in
 * kernels. */
#include "packed/lowrank.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "packed/read.h"
#include "packed/scales.h"

static fv_status check(const fv_packed_shape *s) {
    const fv_lowrank_shape *x = &s->lowrank;
    if ((x->bits != 16 && x->bits != 8 && x->bits != 4) || s->borrows)
        return FV_FAIL(FV_EINVAL, "factors with %d bits, or that borrow: 16, 8 or 4 bits", x->bits);
    FV_TRY(fv_packed_check_common(s, "factors"));
    if (x->rank == 0 && x->rank2 == 0 && s->kind == FV_PACKED_V && x->bits == 16) return FV_OK;
    if (x->rank < 1 || (size_t)x->rank > fv_packed_width(s))
        return FV_FAIL(FV_EINVAL, "factors of rank %d: 1 to %zu", x->rank, fv_packed_width(s));
    if (x->rank2 < 1 || x->rank2 > x->rank)
        return FV_FAIL(FV_EINVAL, "factors with lower rank %d: 1 to %d", x->rank2, x->rank);
    return FV_OK;
}

/* ---- one group of numbers -------------------------------------------------------------- */

static float as_f16(float x) { return f32_of_f16(f16_of_f32(x)); }

/* The pair for n numbers at a distance of ld, each divided by its own divisor unless `divisor` is NULL;
 * rounded to f16 with `half`. */
static code_pair scale_of(const float *x, size_t n, size_t ld, const float *divisor, int top,
                          bool half) {
    float lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        float v = divisor ? x[i * ld] / divisor[i] : x[i * ld];
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    if (!(lo <= hi)) return (code_pair){0, 0};
    if (half) lo = as_f16(lo);
    float step = (hi - lo) / (float)top;
    return (code_pair){lo, half ? as_f16(step) : step};
}

static void put_pair_f16(char *to, code_pair s) {
    uint16_t pair[2] = {f16_of_f32(s.lo), f16_of_f32(s.step)};
    memcpy(to, pair, sizeof pair);
}

/* ---- U ---------------------------------------------------------------------------------- */

/* The row of a tier (for keys, the line of a tile) with element r of row j; *i: the element's index in
 * it. */
static char *element(char *data, const fv_packed_layout *l, const fv_packed_shape *s, size_t j,
                     size_t r, size_t *i) {
    int tier = r >= (size_t)s->lowrank.rank2;
    char *at = data + l->tier[tier];
    r -= tier ? (size_t)s->lowrank.rank2 : 0;
    *i = s->kind == FV_PACKED_K ? j % FV_PACKED_TILE : r;
    if (s->kind == FV_PACKED_V) return at + j * l->stride[tier];
    return at + j / FV_PACKED_TILE * l->stride[tier] + r * fv_packed_row_bytes(s, FV_PACKED_TILE);
}

static void write_u_plain(const fv_packed_shape *s, const fv_packed_layout *l, const float *u,
                          char *data) {
    size_t size = fv_dtype_bytes(s->dtype), i;
    for (size_t j = 0; j < (size_t)s->n; j++)
        for (size_t r = 0; r < (size_t)s->lowrank.rank; r++, u++) {
            char *row = element(data, l, s, j, r, &i);
            narrow_row(u, 1, s->dtype, row + i * size);
        }
}

static void write_u_keys(const fv_packed_shape *s, const fv_packed_layout *l, const float *u,
                         char *data) {
    size_t R = (size_t)s->lowrank.rank, i;
    for (size_t r = 0; r < R; r++) {
        code_pair c = scale_of(u + r, (size_t)s->n, R, NULL, top_code(s->lowrank.bits), false);
        memcpy(data + l->pair + r * sizeof c, &c, sizeof c);
        for (size_t j = 0; j < (size_t)s->n; j++) {
            char *row = element(data, l, s, j, r, &i);
            put_code(row, s->lowrank.bits, i, code_of(u[j * R + r], c, top_code(s->lowrank.bits)));
        }
    }
}

/* The root of the mean square of column r, 1 for a column of zeros. */
static float column_size(const float *u, size_t n, size_t R) {
    double sum = 0;
    for (size_t j = 0; j < n; j++) sum += (double)u[j * R] * (double)u[j * R];
    float size = n ? (float)sqrt(sum / (double)n) : 0;
    return size > 0 ? size : 1;
}

static void write_u_values(const fv_packed_shape *s, const fv_packed_layout *l, const float *u,
                           char *data) {
    size_t R = (size_t)s->lowrank.rank, i;
    float *column = (float *)(data + l->column);
    for (size_t r = 0; r < R; r++) column[r] = column_size(u + r, (size_t)s->n, R);
    for (size_t j = 0; j < (size_t)s->n; j++, u += R) {
        code_pair c = scale_of(u, R, 1, column, top_code(s->lowrank.bits), true);
        put_pair_f16(data + l->pair + j * 4, c);
        for (size_t r = 0; r < R; r++) {
            char *row = element(data, l, s, j, r, &i);
            put_code(row, s->lowrank.bits, i,
                     code_of(u[r] / column[r], c, top_code(s->lowrank.bits)));
        }
    }
}

void fv_packed_read_u(const fv_packed_part *p, int32_t row0, int32_t n, float *u) {
    packed_view v = packed_view_of(p);
    assert(row0 >= 0 && n >= 0 && row0 + n <= v.s.n);
    for (int32_t j = row0; j < row0 + n; j++, u += v.s.lowrank.rank)
        for (int tier = 0; tier < 2; tier++)
            (v.s.kind == FV_PACKED_K ? packed_k_row : packed_v_row)(
                &v, tier, (size_t)j, u + (tier ? v.s.lowrank.rank2 : 0));
}

/* ---- basis ------------------------------------------------------------------------------ */

/* Writes the basis [R, Hkv * D] head by head, that of keys transposed. */
static void write_basis(const fv_packed_shape *s, const fv_packed_layout *l, const float *basis,
                        char *data) {
    size_t D = (size_t)s->d_head, n_kv = (size_t)s->n_kv, R = (size_t)s->lowrank.rank;
    size_t size = fv_dtype_bytes(s->dtype);
    for (size_t r = 0; r < R; r++)
        for (size_t g = 0; g < n_kv; g++, basis += D) {
            code_pair c = {0, 0};
            if (s->lowrank.bits != 16) {
                c = scale_of(basis, D, 1, NULL, top_code(s->lowrank.bits), true);
                put_pair_f16(data + l->basis_pair + (g * R + r) * 4, c);
            }
            for (size_t d = 0; d < D; d++) {
                bool key = s->kind == FV_PACKED_K;
                size_t i = key ? r : d;
                char *line = data + l->basis + g * l->basis_head + (key ? d : r) * l->basis_stride;
                if (s->lowrank.bits == 16)
                    narrow_row(basis + d, 1, s->dtype, line + i * size);
                else
                    put_code(line, s->lowrank.bits, i,
                             code_of(basis[d], c, top_code(s->lowrank.bits)));
            }
        }
}

void fv_packed_read_basis(const fv_packed_part *p, float *basis) {
    packed_view v = packed_view_of(p);
    size_t D = (size_t)v.s.d_head;
    for (size_t r = 0; r < (size_t)v.s.lowrank.rank; r++)
        for (size_t g = 0; g < (size_t)v.s.n_kv; g++, basis += D)
            for (size_t d = 0; d < D; d++) basis[d] = packed_basis_number(&v, g, r, d);
}

/* ---- values as rows ----------------------------------------------------------------------- */

static void write_rows(const fv_packed_shape *s, const fv_packed_layout *l, const float *v,
                       char *data) {
    size_t D = (size_t)s->d_head, row = D * fv_dtype_bytes(s->dtype);
    for (size_t j = 0; j < (size_t)s->n; j++)
        for (size_t g = 0; g < (size_t)s->n_kv; g++, v += D)
            narrow_row(v, D, s->dtype, data + l->rows + (g * (size_t)s->n + j) * row);
}

void fv_packed_read_rows(const fv_packed_part *p, int32_t row0, int32_t n, float *v) {
    packed_view part = packed_view_of(p);
    assert(row0 >= 0 && n >= 0 && row0 + n <= part.s.n);
    for (int32_t j = row0; j < row0 + n; j++)
        for (size_t g = 0; g < (size_t)part.s.n_kv; g++, v += part.s.d_head)
            packed_row(&part, g, (size_t)j, v);
}

/* ---- parts ------------------------------------------------------------------------------ */

void fv_packed_write(const fv_packed_shape *s, const float *u, const float *basis, void *data) {
    fv_packed_layout l = fv_packed_layout_of(s);
    memset(data, 0, l.bytes);
    if (fv_packed_is_rows(s)) {
        write_rows(s, &l, u, data);
        return;
    }
    if (s->lowrank.bits == 16)
        write_u_plain(s, &l, u, data);
    else if (s->kind == FV_PACKED_K)
        write_u_keys(s, &l, u, data);
    else
        write_u_values(s, &l, u, data);
    write_basis(s, &l, basis, data);
}

/* Copies the bits of element r of row idx[j] of src to row j of dst. */
static void keep_element(const packed_view *src, const packed_view *dst, const int32_t *idx,
                         size_t j, size_t r) {
    size_t from_i, to_i, size = fv_dtype_bytes(src->s.dtype);
    const char *from =
        element((char *)(uintptr_t)src->data, &src->l, &src->s, (size_t)idx[j], r, &from_i);
    char *to = element((char *)(uintptr_t)dst->data, &dst->l, &dst->s, j, r, &to_i);
    if (src->s.lowrank.bits == 16)
        memcpy(to + to_i * size, from + from_i * size, size);
    else
        put_code(to, dst->s.lowrank.bits, to_i,
                 packed_code((const uint8_t *)from, src->s.lowrank.bits, from_i));
}

static fv_packed_shape kept(const fv_packed_part *src, const int32_t *idx, int32_t n) {
    (void)idx;
    return fv_packed_with_rows(&src->shape, n);
}

static void keep(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst) {
    const fv_packed_shape *s = &src->shape;
    packed_view from = packed_view_of(src), to = packed_view_of(dst);
    const char *a = src->data;
    char *b = dst->data;
    memset(b, 0, to.l.bytes);
    size_t row = (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    for (size_t g = 0; fv_packed_is_rows(s) && g < (size_t)s->n_kv; g++)
        for (size_t j = 0; j < (size_t)dst->shape.n; j++)
            memcpy(b + to.l.rows + (g * (size_t)dst->shape.n + j) * row,
                   packed_row_at(&from, g, (size_t)idx[j]), row);
    for (size_t j = 0; j < (size_t)dst->shape.n; j++)
        for (size_t r = 0; r < (size_t)s->lowrank.rank; r++) keep_element(&from, &to, idx, j, r);
    if (s->lowrank.bits != 16 && s->kind == FV_PACKED_V)
        for (int32_t j = 0; j < dst->shape.n; j++)
            memcpy(b + to.l.pair + (size_t)j * 4, a + from.l.pair + (size_t)idx[j] * 4, 4);
    else
        memcpy(b + to.l.pair, a + from.l.pair, fv_packed_pair_bytes(s));
    memcpy(b + to.l.column, a + from.l.column, fv_packed_column_bytes(s));
    memcpy(b + to.l.basis, a + from.l.basis, fv_packed_basis_bytes(s));
    memcpy(b + to.l.basis_pair, a + from.l.basis_pair, fv_packed_basis_pair_bytes(s));
}

/* ---- the table -------------------------------------------------------------------------- */

static size_t bytes_of(const fv_packed_shape *s) { return fv_packed_layout_of(s).bytes; }

static void put_numbers(const fv_packed_shape *s, fv_packed_numbers *out) {
    *out = (fv_packed_numbers){.rank = (uint32_t)s->lowrank.rank,
                               .rank2 = (uint32_t)s->lowrank.rank2,
                               .bits = s->lowrank.bits};
}

static void take_numbers(const fv_packed_numbers *in, fv_packed_shape *s) {
    bool known = in->bits <= 16 && in->n_outlier == 0;
    s->lowrank = (fv_lowrank_shape){.rank = fv_packed_count(in->rank),
                                    .rank2 = fv_packed_count(in->rank2),
                                    .bits = known ? (uint8_t)in->bits : 0};
}

const fv_packed_format fv_format_lowrank = {.name = "svd",
                                            .scored = true,
                                            .bytes = bytes_of,
                                            .sent_bytes = bytes_of,
                                            .check = check,
                                            .fits = fv_packed_same_rows,
                                            .smallest = fv_packed_with_rows,
                                            .kept = kept,
                                            .keep = keep,
                                            .put_numbers = put_numbers,
                                            .take_numbers = take_numbers};
