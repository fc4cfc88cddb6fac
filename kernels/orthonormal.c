/* CholeskyQR2 over rows. The p x p work is done in double on the calling thread, the products with
 * p x N matrices by the backend. */
#include "kernels/orthonormal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A row is dropped when less than this share of its square is new. Rows are products in f32, whose
 * rounding is 1e-14 of the square; after the first pass every row is new up to a hundredth. */
static const double NEW_SHARE[2] = {1e-12, 1e-2};

static double dot_f64(const float *x, const float *y, size_t n) {
    double acc[8] = {0}, sum = 0;
    size_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (int i = 0; i < 8; i++) acc[i] += (double)x[k + i] * (double)y[k + i];
    for (int i = 0; i < 8; i++) sum += acc[i];
    for (; k < n; k++) sum += (double)x[k] * (double)y[k];
    return sum;
}

static void gram_f64(const fv_tensor *y, double *g) {
    size_t p = (size_t)y->rows, N = (size_t)y->cols;
    const float *rows = y->data;
    for (size_t i = 0; i < p; i++)
        for (size_t j = 0; j <= i; j++) g[i * p + j] = dot_f64(rows + i * N, rows + j * N, N);
}

static fv_status gram_f32(fv_backend *be, fv_arena *room, const fv_tensor *y, double *g) {
    size_t p = (size_t)y->rows;
    float *f;
    FV_TRY(FV_ARENA_NEW(room, p * p, f));
    fv_linear_args a = {
        .x = *y, .n_part = 1, .part = {{.w = *y, .y = fv_tensor_of(f, FV_F32, y->rows, y->rows)}}};
    FV_TRY(be->ops->linear(be, &a));
    for (size_t i = 0; i < p * p; i++) g[i] = (double)f[i];
    return FV_OK;
}

/* Cholesky on the lower triangle of g [p, p], row after row, leaving out rows that are not new.
 * kept[k] is the row of g that became row k of the factor, which lies in l [k, k] with a stride of
 * p. Returns their number. */
static size_t cholesky(const double *g, size_t p, double share, double *l, size_t *kept) {
    size_t n = 0;
    for (size_t i = 0; i < p; i++) {
        double *row = l + n * p, rest = g[i * p + i];
        for (size_t k = 0; k < n; k++) {
            double sum = g[i * p + kept[k]];
            for (size_t j = 0; j < k; j++) sum -= row[j] * l[k * p + j];
            row[k] = sum / l[k * p + k];
            rest -= row[k] * row[k];
        }
        if (!(rest > share * g[i * p + i])) continue;
        row[n] = sqrt(rest);
        kept[n++] = i;
    }
    return n;
}

/* c [n, p] = L^-1 at the columns of the rows that were kept: row k is
 * (e_k - sum_{j<k} L[k,j] row j) / L[k,k]. */
static void invert(const double *l, size_t n, size_t p, const size_t *kept, double *inverse,
                   float *c) {
    memset(c, 0, n * p * sizeof *c);
    for (size_t k = 0; k < n; k++) {
        double *row = inverse + k * n, d = l[k * p + k];
        for (size_t i = 0; i < n; i++) row[i] = i == k ? 1 : 0;
        for (size_t j = 0; j < k; j++)
            for (size_t i = 0; i <= j; i++) row[i] -= l[k * p + j] * inverse[j * n + i];
        for (size_t i = 0; i <= k; i++) {
            row[i] /= d;
            c[k * p + kept[i]] = (float)row[i];
        }
    }
}

/* to = the rows of y made orthonormal, from the Gram matrix g. */
static fv_status pass(fv_backend *be, fv_arena *room, const fv_tensor *y, const double *g,
                      double share, float *to, int32_t *left) {
    size_t p = (size_t)y->rows, *kept;
    double *l, *inverse;
    float *c;
    FV_TRY(FV_ARENA_NEW(room, p, kept));
    FV_TRY(FV_ARENA_NEW(room, p * p, l));
    size_t n = cholesky(g, p, share, l, kept);
    FV_TRY(FV_ARENA_NEW(room, n * n, inverse));
    FV_TRY(FV_ARENA_NEW(room, n * p, c));
    invert(l, n, p, kept, inverse, c);
    *left = (int32_t)n;
    fv_combine_args a = {.x = fv_tensor_of(c, FV_F32, *left, y->rows),
                         .w = *y,
                         .y = fv_tensor_of(to, FV_F32, *left, y->cols)};
    return be->ops->combine(be, &a);
}

fv_status fv_orthonormal(fv_backend *be, fv_arena *room, fv_tensor *y, float *spare, bool upright) {
    assert(y->dtype == FV_F32 && y->ld == y->cols);
    size_t p = (size_t)y->rows;
    fv_tensor half = *y;
    double *g;
    FV_TRY(FV_ARENA_NEW(room, p * p, g));
    if (upright)
        FV_TRY(gram_f32(be, room, y, g));
    else
        gram_f64(y, g);
    half.data = spare;
    FV_TRY(pass(be, room, y, g, NEW_SHARE[0], spare, &half.rows));
    FV_TRY(gram_f32(be, room, &half, g));
    return pass(be, room, &half, g, NEW_SHARE[1], y->data, &y->rows);
}
