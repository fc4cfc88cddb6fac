/* Encodes and decodes codes on the host: chooses outliers and the pair of a line, and places each code;
 * and the part of directions that is the same. Runs on the thread that compresses or decompresses; decode
 * steps read blocks in kernels. */
#include "packed/codes.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed/read.h"
#include "packed/scales.h"

fv_status fv_codes_check(const fv_packed_shape *s, const char *what) {
    enum { MOST_WIDTH = 1 << 16 };
    int32_t n = fv_codes_n_outlier(s);
    FV_TRY(fv_packed_check_common(s, what));
    if (fv_packed_width(s) > MOST_WIDTH)
        return FV_FAIL(FV_EINVAL, "%s of %d heads of %d: %d numbers in all at most", what, s->n_kv,
                       s->d_head, MOST_WIDTH);
    if (n < 0 || (size_t)n > (size_t)s->n * fv_packed_width(s) / fv_codes_unit(s))
        return FV_FAIL(FV_EINVAL, "%d outliers among %d rows of %zu numbers", n, s->n,
                       fv_packed_width(s));
    return FV_OK;
}

static fv_status check(const fv_packed_shape *s) {
    const fv_codes_shape *x = &s->codes;
    bool rows = x->bits == 16 && s->kind == FV_PACKED_V && x->n_outlier == 0;
    if ((x->bits != 8 && x->bits != 4 && !rows) || s->borrows)
        return FV_FAIL(
            FV_EINVAL,
            "codes with %d bits, or that borrow: 8 or 4 bits, or 16 for values without outliers",
            x->bits);
    return fv_codes_check(s, "codes");
}

fv_status fv_codes_check_outliers(const fv_packed_part *p) {
    codes_view v = codes_view_of(p);
    const uint32_t *first = (const uint32_t *)(v.data + v.l.first);
    const uint16_t *channel = (const uint16_t *)(v.data + v.l.channel);
    uint32_t n = (uint32_t)fv_codes_n_outlier(&v.s);
    size_t places = fv_packed_width(&v.s) / fv_codes_unit(&v.s);
    if (n == 0) return FV_OK;
    bool good = first[0] == 0 && first[v.s.n] == n;
    for (int32_t j = 0; good && j < v.s.n; j++) {
        good = first[j] <= first[j + 1] && first[j + 1] <= n;
        for (uint32_t i = first[j]; good && i < first[j + 1]; i++)
            good = channel[i] < places && (i == first[j] || channel[i] > channel[i - 1]);
    }
    return good ? FV_OK : FV_FAIL(FV_EINVAL, "outliers are not sorted by row and channel");
}

/* ---- one line --------------------------------------------------------------------------- */

typedef struct writer {
    const fv_packed_shape *s;
    fv_codes_layout l;
    char *data;
    uint8_t *is_out; /* [n, W] */
    uint32_t *best;  /* [outliers of a line at one end] */
    double off, all; /* sums of squares: of the errors, and of all numbers */
} writer;

/* Marks the m largest of sign * x[n] that are not yet outliers as outliers; the first of equal ones.
 * is_out has stride ld. */
static void mark(const float *x, size_t n, size_t m, float sign, uint32_t *best, uint8_t *is_out,
                 size_t ld) {
    size_t have = 0;
    for (size_t i = 0; m > 0 && i < n; i++) {
        if (is_out[i * ld] || (have == m && !(sign * x[i] > sign * x[best[m - 1]]))) continue;
        size_t at = have < m ? have++ : m - 1;
        for (; at > 0 && sign * x[i] > sign * x[best[at - 1]]; at--) best[at] = best[at - 1];
        best[at] = (uint32_t)i;
    }
    for (size_t i = 0; i < have; i++) is_out[best[i] * ld] = 1;
}

/* The pair of the numbers that are not outliers. Divides the two ends before subtracting them, so that the
 * step is finite. */
static code_pair scale_of(const float *x, size_t n, const uint8_t *is_out, size_t ld, int top) {
    float lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (is_out[i * ld]) continue;
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    return lo <= hi ? (code_pair){lo, hi / (float)top - lo / (float)top} : (code_pair){0, 0};
}

/* The line of codes with row j, channel c; *i: the code's index in it. */
static char *code_at(const fv_packed_shape *s, const fv_codes_layout *l, char *data, size_t j,
                     size_t c, size_t *i) {
    size_t D = (size_t)s->d_head, g = c / D, d = c % D;
    char *head = data + l->code + g * l->head;
    bool key = s->kind == FV_PACKED_K;
    *i = key ? j % FV_PACKED_TILE : d;
    if (!key) return head + j * l->stride;
    return head + j / FV_PACKED_TILE * l->stride + d * fv_packed_row_bytes(s, FV_PACKED_TILE);
}

/* Writes line k, channel k of keys or row k of values, from its numbers x [n]. */
static void write_line(writer *w, size_t k, const float *x, size_t n, size_t n_out) {
    bool key = w->s->kind == FV_PACKED_K;
    size_t W = fv_packed_width(w->s), ld = key ? W : 1;
    uint8_t *is_out = w->is_out + (key ? k : k * W);
    int top = top_code(w->s->codes.bits);
    mark(x, n, n_out, 1, w->best, is_out, ld);
    mark(x, n, n_out, -1, w->best, is_out, ld);
    code_pair c = scale_of(x, n, is_out, ld, top);
    memcpy(w->data + w->l.pair + k * sizeof c, &c, sizeof c);
    for (size_t i = 0; i < n; i++) {
        size_t at;
        w->all += (double)x[i] * (double)x[i];
        if (is_out[i * ld]) continue;
        int code = code_of(x[i], c, top);
        char *line = code_at(w->s, &w->l, w->data, key ? i : k, key ? k : i, &at);
        put_code(line, w->s->codes.bits, at, code);
        double lost = (double)x[i] - (double)fmaf(c.step, (float)code, c.lo);
        w->off += lost * lost;
    }
}

/* ---- a part ----------------------------------------------------------------------------- */

/* Writes keys channel by channel, from copies of some adjacent channels at a time. */
static void write_keys(writer *w, const float *m, float *columns, size_t n_out) {
    size_t n = (size_t)w->s->n, W = fv_packed_width(w->s);
    for (size_t k = 0, band; k < W; k += band) {
        band = W - k < FV_PACKED_TILE ? W - k : FV_PACKED_TILE;
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < band; i++) columns[i * n + j] = m[j * W + k + i];
        for (size_t i = 0; i < band; i++) write_line(w, k + i, columns + i * n, n, n_out);
    }
}

/* Writes the marked outliers, row by row. */
static fv_status write_outliers(writer *w, const float *m) {
    size_t W = fv_packed_width(w->s), size = fv_dtype_bytes(w->s->dtype), at = 0;
    uint32_t *first = (uint32_t *)(w->data + w->l.first);
    uint16_t *channel = (uint16_t *)(w->data + w->l.channel);
    char *value = w->data + w->l.value;
    for (size_t j = 0; w->s->codes.n_outlier && j < (size_t)w->s->n; first[++j] = (uint32_t)at)
        for (size_t c = 0; c < W; c++) {
            float x = m[j * W + c];
            if (!w->is_out[j * W + c]) continue;
            channel[at] = (uint16_t)c;
            narrow_row(&x, 1, w->s->dtype, value + at * size);
            double lost = (double)x - (double)widened(value, w->s->dtype, at++);
            w->off += lost * lost;
        }
    assert(at == (size_t)w->s->codes.n_outlier);
    if (isfinite(w->off)) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "an outlier is larger than f16 can hold: start both workers with --kv-dtype "
                   "bf16");
}

static fv_status check_finite(const fv_packed_shape *s, const float *m) {
    size_t W = fv_packed_width(s);
    for (int32_t j = 0; j < s->n; j++)
        for (size_t c = 0; c < W; c++)
            if (!isfinite(m[(size_t)j * W + c]))
                return FV_FAIL(FV_EINVAL, "row %d of the KV to be packed has a NaN or infinity", j);
    return FV_OK;
}

/* Writes values that are not coded: rows of 16 bits. */
static void write_rows(const fv_packed_shape *s, const float *m, void *data, double *error) {
    fv_codes_layout l = fv_codes_layout_of(s);
    size_t D = (size_t)s->d_head, n = (size_t)s->n * (size_t)s->n_kv;
    double off = 0, all = 0;
    memset(data, 0, l.bytes);
    for (size_t i = 0; i < n; i++, m += D) {
        size_t j = i / (size_t)s->n_kv, g = i % (size_t)s->n_kv;
        char *row = (char *)data + l.code + g * l.head + j * l.stride;
        narrow_row(m, D, s->dtype, row);
        for (size_t d = 0; d < D; d++) {
            double lost = (double)m[d] - (double)widened(row, s->dtype, d);
            all += (double)m[d] * (double)m[d];
            off += lost * lost;
        }
    }
    *error = all > 0 ? sqrt(off / all) : 0;
}

fv_status fv_codes_write(const fv_packed_shape *s, const float *m, void *data, double *error) {
    size_t n = (size_t)s->n, W = fv_packed_width(s);
    bool key = s->kind == FV_PACKED_K;
    size_t lines = key ? W : n, n_out = lines ? (size_t)s->codes.n_outlier / lines / 2 : 0;
    FV_TRY(check_finite(s, m));
    if (s->codes.bits == 16) {
        write_rows(s, m, data, error);
        return FV_OK;
    }
    writer w = {.s = s, .l = fv_codes_layout_of(s), .data = data};
    memset(data, 0, w.l.bytes);
    w.is_out = calloc(n * W + 1, 1);
    w.best = malloc((n_out + 1) * sizeof *w.best);
    float *columns = malloc((key ? FV_PACKED_TILE * n : 0) * sizeof *columns + 1);
    fv_status st = FV_OK;
    if (!w.is_out || !w.best || !columns) {
        st = FV_FAIL(FV_ENOMEM, "out of memory for codes of %d rows", s->n);
    } else {
        if (key) write_keys(&w, m, columns, n_out);
        for (size_t j = 0; !key && j < n; j++) write_line(&w, j, m + j * W, W, n_out);
        st = write_outliers(&w, m);
    }
    free(w.is_out);
    free(w.best);
    free(columns);
    if (st == FV_OK) *error = w.all > 0 ? sqrt(w.off / w.all) : 0;
    return st;
}

void fv_codes_read(const fv_packed_part *p, int32_t row0, int32_t n, float *m) {
    codes_view v = codes_view_of(p);
    assert(row0 >= 0 && n >= 0 && row0 + n <= v.s.n);
    for (int32_t j = row0; j < row0 + n; j++)
        for (size_t g = 0; g < (size_t)v.s.n_kv; g++, m += v.s.d_head)
            codes_row(&v, g, (size_t)j, m);
}

/* ---- keeping some rows ------------------------------------------------------------------ */

int32_t fv_codes_count(const fv_packed_part *p, const int32_t *idx, int32_t n) {
    codes_view v = codes_view_of(p);
    uint32_t sum = 0, begin;
    for (int32_t i = 0; i < n; i++) sum += codes_outliers(&v, (size_t)idx[i], &begin) - begin;
    return (int32_t)sum;
}

static void keep_number(const fv_packed_shape *s, const char *line, size_t i, char *to, size_t at) {
    size_t size = fv_dtype_bytes(s->dtype);
    uint8_t bits = fv_packed_bits(s);
    if (bits == 16)
        memcpy(to + at * size, line + i * size, size);
    else
        put_code(to, bits, at, packed_code((const uint8_t *)line, bits, i));
}

static void keep_norms(const codes_view *src, const codes_view *dst, char *to, size_t from,
                       size_t j) {
    for (size_t g = 0; g < (size_t)src->s.n_kv; g++)
        memcpy(to + dst->l.pair + merged_norm_at(&dst->s, g, j) * 4, merged_norms(src, g, from), 4);
}

/* Copies a row; borrowed codes are copied with the part that owns them. */
static void keep_row(const codes_view *src, const codes_view *dst, char *to, size_t from,
                     size_t j) {
    size_t W = fv_packed_width(&src->s), i, at;
    for (size_t c = 0; c < W && !src->s.borrows; c++) {
        char *line = code_at(&src->s, &src->l, (char *)(uintptr_t)src->data, from, c, &i);
        char *there = code_at(&dst->s, &dst->l, to, j, c, &at);
        keep_number(&src->s, line, i, there, at);
    }
    if (src->s.form == FV_PACKED_MERGED)
        keep_norms(src, dst, to, from, j);
    else if (src->s.kind == FV_PACKED_V && src->s.codes.bits != 16)
        memcpy(to + dst->l.pair + j * 8, src->data + src->l.pair + from * 8, 8);
}

static uint32_t keep_outliers(const codes_view *src, const codes_view *dst, char *to, size_t from,
                              uint32_t at) {
    size_t size = fv_codes_unit(&src->s) * fv_dtype_bytes(src->s.dtype);
    uint32_t begin, n = codes_outliers(src, from, &begin) - begin;
    memcpy(to + dst->l.channel + at * 2, src->data + src->l.channel + begin * 2, n * 2);
    memcpy(to + dst->l.value + at * size, src->data + src->l.value + begin * size, n * size);
    return at + n;
}

void fv_codes_keep(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst) {
    codes_view a = codes_view_of(src), b = codes_view_of(dst);
    char *to = dst->data;
    uint32_t at = 0, *first = (uint32_t *)(to + b.l.first);
    memset(to, 0, b.l.bytes);
    for (size_t j = 0; j < (size_t)b.s.n; j++) {
        keep_row(&a, &b, to, (size_t)idx[j], j);
        if (fv_codes_n_outlier(&b.s) == 0) continue;
        at = keep_outliers(&a, &b, to, (size_t)idx[j], at);
        first[j + 1] = at;
    }
    if (a.s.form == FV_PACKED_QUANTIZED && a.s.kind == FV_PACKED_K)
        memcpy(to + b.l.pair, a.data + a.l.pair, fv_packed_width(&a.s) * 8);
}

/* ---- the table -------------------------------------------------------------------------- */

static size_t bytes_of(const fv_packed_shape *s) { return fv_codes_layout_of(s).bytes; }

static fv_packed_shape smallest(const fv_packed_shape *s, int32_t n) {
    fv_packed_shape to = fv_packed_with_rows(s, n);
    to.codes.n_outlier = 0;
    return to;
}

static fv_packed_shape kept(const fv_packed_part *src, const int32_t *idx, int32_t n) {
    fv_packed_shape to = fv_packed_with_rows(&src->shape, n);
    to.codes.n_outlier = fv_codes_count(src, idx, n);
    return to;
}

static void put_numbers(const fv_packed_shape *s, fv_packed_numbers *out) {
    *out = (fv_packed_numbers){.bits = s->codes.bits, .n_outlier = (uint32_t)s->codes.n_outlier};
}

static void take_numbers(const fv_packed_numbers *in, fv_packed_shape *s) {
    bool known = in->bits <= 16 && in->rank == 0 && in->rank2 == 0;
    s->codes = (fv_codes_shape){.n_outlier = fv_packed_count(in->n_outlier),
                                .bits = known ? (uint8_t)in->bits : 0};
}

const fv_packed_format fv_format_codes = {.name = "quant",
                                          .tiled = true,
                                          .bytes = bytes_of,
                                          .sent_bytes = bytes_of,
                                          .check = check,
                                          .check_data = fv_codes_check_outliers,
                                          .fits = fv_packed_same_rows,
                                          .smallest = smallest,
                                          .kept = kept,
                                          .keep = fv_codes_keep,
                                          .read = fv_codes_read,
                                          .put_numbers = put_numbers,
                                          .take_numbers = take_numbers};
