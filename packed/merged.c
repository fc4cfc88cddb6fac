/* Merges two layers' rows into directions, norms and exact vectors (merged.h), in double, vector by vector.
 * Runs on the thread that compacts; decode steps read parts in kernels. */
#include "packed/merged.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "packed/codes.h"
#include "packed/read.h"

static double norm_of(const float *x, size_t D) {
    double sum = 0;
    for (size_t d = 0; d < D; d++) sum += (double)x[d] * (double)x[d];
    return sqrt(sum);
}

/* The angle between two vectors; 0 if one has no direction. */
static double angle_of(const float *a, const float *b, size_t D) {
    double dot = 0, norms = norm_of(a, D) * norm_of(b, D);
    for (size_t d = 0; d < D; d++) dot += (double)a[d] * (double)b[d];
    if (!(norms > 0)) return 0;
    double cosine = dot / norms;
    return acos(cosine > 1 ? 1 : cosine < -1 ? -1 : cosine);
}

int32_t fv_merged_keep(const fv_packed_shape *s, const float *const m[2], double gamma,
                       uint8_t *kept) {
    size_t D = (size_t)s->d_head, n = (size_t)s->n * (size_t)s->n_kv;
    double least = INFINITY, most = -INFINITY;
    int32_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        double angle = angle_of(m[0] + i * D, m[1] + i * D, D);
        least = angle < least ? angle : least;
        most = angle > most ? angle : most;
    }
    for (size_t i = 0; i < n; i++) {
        double angle = angle_of(m[0] + i * D, m[1] + i * D, D);
        kept[i] = angle - least > (1 - gamma) * (most - least);
        n_kept += kept[i];
    }
    return n_kept;
}

/* Computes the direction e [D] of two vectors with these norms. */
static void direction(const float *const m[2], const double norm[2], size_t D, double t, float *e) {
    double angle = angle_of(m[0], m[1], D), sine = sin(angle), x = 1 - t, y = t;
    if (sine > 1e-6) {
        x = sin((1 - t) * angle) / sine;
        y = sin(t * angle) / sine;
    }
    if (norm[0] == 0) x = 0, y = 1;
    if (norm[1] == 0) x = 1, y = 0;
    x = norm[0] > 0 ? x / norm[0] : 0;
    y = norm[1] > 0 ? y / norm[1] : 0;
    for (size_t d = 0; d < D; d++) e[d] = (float)(x * (double)m[0][d] + y * (double)m[1][d]);
}

/* Writes a direction to the first layer's part. */
static void put_direction(const fv_packed_shape *s, const fv_codes_layout *l, char *data, size_t j,
                          size_t g, const float *e) {
    size_t D = (size_t)s->d_head, size = fv_dtype_bytes(s->dtype);
    char *head = data + l->code + g * l->head;
    if (s->kind == FV_PACKED_V) {
        narrow_row(e, D, s->dtype, head + j * l->stride);
        return;
    }
    char *tile = head + j / FV_PACKED_TILE * l->stride + j % FV_PACKED_TILE * size;
    for (size_t d = 0; d < D; d++) narrow_row(e + d, 1, s->dtype, tile + d * FV_PACKED_TILE * size);
}

/* Merges the two vectors of row j and head g into a direction and two norms. */
static fv_status merge(const fv_packed_shape *s, const fv_codes_layout l[2],
                       const float *const vector[2], double t, size_t j, size_t g,
                       void *const data[2]) {
    size_t D = (size_t)s->d_head;
    double norm[2] = {norm_of(vector[0], D), norm_of(vector[1], D)};
    float e[1024];
    for (int i = 0; i < 2; i++) {
        if (!(norm[i] <= FLT_MAX))
            return FV_FAIL(FV_EINVAL, "the norm of row %zu of the KV to be packed overflows f32",
                           j);
        float *norms = (float *)(void *)((char *)data[i] + l[i].pair);
        norms[merged_norm_at(s, g, j)] = (float)norm[i];
    }
    direction(vector, norm, D, t, e);
    put_direction(s, &l[0], data[0], j, g, e);
    return FV_OK;
}

static void put_kept(const fv_packed_shape *s, const fv_codes_layout *l, char *data,
                     const uint8_t *kept, const float *m) {
    size_t D = (size_t)s->d_head, H = (size_t)s->n_kv, size = D * fv_dtype_bytes(s->dtype), at = 0;
    uint32_t *first = (uint32_t *)(void *)(data + l->first);
    uint16_t *head = (uint16_t *)(void *)(data + l->channel);
    for (size_t j = 0; s->merged.n_exact && j < (size_t)s->n; first[++j] = (uint32_t)at)
        for (size_t g = 0; g < H; g++) {
            if (!kept[j * H + g]) continue;
            narrow_row(m + (j * H + g) * D, D, s->dtype, data + l->value + at * size);
            head[at++] = (uint16_t)g;
        }
    assert(at == (size_t)s->merged.n_exact);
}

/* Measures the relative error of one layer. */
static fv_status measure(const fv_packed_part *p, const float *m, double *error) {
    codes_view v = codes_view_of(p);
    size_t D = (size_t)v.s.d_head;
    double off = 0, all = 0;
    float row[1024];
    for (size_t j = 0; j < (size_t)v.s.n; j++)
        for (size_t g = 0; g < (size_t)v.s.n_kv; g++, m += D) {
            codes_row(&v, g, j, row);
            for (size_t d = 0; d < D; d++) {
                off += ((double)m[d] - (double)row[d]) * ((double)m[d] - (double)row[d]);
                all += (double)m[d] * (double)m[d];
            }
        }
    *error = all > 0 ? sqrt(off / all) : 0;
    if (isfinite(off)) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "a row that is kept holds more than f16 can: start both workers with --kv-dtype "
                   "bf16");
}

static fv_status check_finite(const fv_packed_shape *s, const float *m) {
    size_t W = fv_packed_width(s);
    for (size_t i = 0; i < (size_t)s->n * W; i++)
        if (!isfinite(m[i]))
            return FV_FAIL(FV_EINVAL, "row %zu of the KV to be packed has a NaN or infinity",
                           i / W);
    return FV_OK;
}

fv_status fv_merged_write(const fv_packed_shape s[2], const float *const m[2], double t,
                          const uint8_t *kept, void *const data[2], double error[2]) {
    size_t D = (size_t)s->d_head, H = (size_t)s->n_kv;
    fv_codes_layout l[2] = {fv_codes_layout_of(&s[0]), fv_codes_layout_of(&s[1])};
    for (int i = 0; i < 2; i++) {
        FV_TRY(check_finite(&s[i], m[i]));
        memset(data[i], 0, l[i].bytes);
    }
    for (size_t i = 0; i < (size_t)s->n * H; i++) {
        const float *const vector[2] = {m[0] + i * D, m[1] + i * D};
        if (!kept[i]) FV_TRY(merge(s, l, vector, t, i / H, i % H, data));
    }
    for (int i = 0; i < 2; i++) put_kept(&s[i], &l[i], data[i], kept, m[i]);
    for (int i = 0; i < 2; i++) {
        fv_packed_part p = {.shape = s[i], .data = data[i], .base = i ? data[0] : NULL};
        FV_TRY(measure(&p, m[i], &error[i]));
    }
    return FV_OK;
}

/* ---- the table -------------------------------------------------------------------------- */

static size_t bytes_of(const fv_packed_shape *s) { return fv_codes_layout_of(s).bytes; }

static fv_status check(const fv_packed_shape *s) { return fv_codes_check(s, "merged rows"); }

static fv_packed_shape smallest(const fv_packed_shape *s, int32_t n) {
    fv_packed_shape to = fv_packed_with_rows(s, n);
    to.merged.n_exact = 0;
    return to;
}

/* The directions come first. */
static size_t lent_bytes(const fv_packed_shape *s) {
    fv_packed_shape lender = smallest(s, s->n);
    lender.borrows = false;
    return bytes_of(&lender);
}

static fv_packed_shape kept(const fv_packed_part *src, const int32_t *idx, int32_t n) {
    fv_packed_shape to = fv_packed_with_rows(&src->shape, n);
    to.merged.n_exact = fv_codes_count(src, idx, n);
    return to;
}

static void put_numbers(const fv_packed_shape *s, fv_packed_numbers *out) {
    *out = (fv_packed_numbers){.bits = 16, .n_outlier = (uint32_t)s->merged.n_exact};
}

static void take_numbers(const fv_packed_numbers *in, fv_packed_shape *s) {
    bool known = in->bits == 16 && in->rank == 0 && in->rank2 == 0;
    s->merged.n_exact = known ? fv_packed_count(in->n_outlier) : -1;
}

const fv_packed_format fv_format_merged = {.name = "minicache",
                                           .tiled = true,
                                           .own_keys = true,
                                           .bytes = bytes_of,
                                           .sent_bytes = bytes_of,
                                           .lent_bytes = lent_bytes,
                                           .check = check,
                                           .check_data = fv_codes_check_outliers,
                                           .fits = fv_packed_same_rows,
                                           .smallest = smallest,
                                           .kept = kept,
                                           .keep = fv_codes_keep,
                                           .read = fv_codes_read,
                                           .put_numbers = put_numbers,
                                           .take_numbers = take_numbers};
