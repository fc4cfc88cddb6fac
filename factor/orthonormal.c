/* CholeskyQR2 over rows. The calling thread does the p x p work, in double, and the backend the products
 * with p x N matrices. */
#include "factor/orthonormal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "factor/doubles.h"
#include "kernels/factor_rule.h"

/* A row is dropped if less than this share of its square is new, in the first pass and the second. */
static const double NEW_SHARE[2] = {FV_FACTOR_NEW_SHARE_FIRST, FV_FACTOR_NEW_SHARE_SECOND};

/* A pass leaves rows orthonormal up to the rounding of its product, 6e-8 of the sum of lengths added up for
 * a row. A sum of a few lengths needs no second pass; where rows nearly cancel, the sum is larger. */
static const double ADDED_UP = 16;

/* Cholesky on the lower triangle of g [p, p], row after row, leaving out dependent rows.
 * kept[k] is the row of g that became row k of the factor, which is in l [k, k] with a stride of
 * p. Returns their number. */
VECTORS static size_t cholesky(const double *g, size_t p, double share, double *l, size_t *kept) {
    size_t n = 0;
    for (size_t i = 0; i < p; i++) {
        double *row = l + n * p, rest = g[i * p + i];
        for (size_t k = 0; k < n; k++) {
            row[k] = (g[i * p + kept[k]] - dot_add(row, l + k * p, k, 0, NULL)) / l[k * p + k];
            rest -= row[k] * row[k];
        }
        if (!(rest > share * g[i * p + i])) continue;
        row[n] = sqrt(rest);
        kept[n++] = i;
    }
    return n;
}

/* Computes c [n, p] = L^-1, with the columns of dropped rows 0: row k is
 * (e_k - sum_{j<k} L[k,j] row j) / L[k,k]. */
VECTORS static void invert(const double *l, size_t n, size_t p, const size_t *kept, double *inverse,
                           float *c) {
    memset(c, 0, n * p * sizeof *c);
    for (size_t k = 0; k < n; k++) {
        double *row = inverse + k * n, d = l[k * p + k];
        for (size_t i = 0; i < n; i++) row[i] = i == k ? 1 : 0;
        for (size_t j = 0; j < k; j++) subtract(row, l[k * p + j], inverse + j * n, j + 1);
        for (size_t i = 0; i <= k; i++) {
            row[i] /= d;
            c[k * p + kept[i]] = (float)row[i];
        }
    }
}

/* The largest sum of lengths added up for a row of c y; length [p] is scratch for the lengths of y's rows. */
VECTORS static double added_up(const double *g, size_t p, const float *c, size_t n,
                               double *length) {
    double most = 0;
    for (size_t i = 0; i < p; i++) length[i] = sqrt(g[i * p + i]);
    for (size_t k = 0; k < n; k++) {
        double sum = 0;
        for (size_t i = 0; i < p; i++) sum += fabs((double)c[k * p + i]) * length[i];
        most = fmax(most, sum);
    }
    return most;
}

/* Does a pass: to = the rows of y made orthonormal; *added: the result of added_up(). */
static fv_status pass(fv_matrices *in, const fv_tensor *y, double share, void *to, int32_t *left,
                      double *added) {
    size_t p = (size_t)y->rows, *kept;
    fv_arena *scratch = in->scratch;
    fv_tensor inverted;
    double *g, *l, *inverse, *length;
    float *c;
    FV_TRY(FV_ARENA_NEW(scratch, p, kept));
    FV_TRY(FV_ARENA_NEW(scratch, p * p, g));
    FV_TRY(FV_ARENA_NEW(scratch, p * p, l));
    FV_TRY(FV_ARENA_NEW(scratch, p, length));
    FV_TRY(in->be->ops->syrk(in->be, &(fv_syrk_args){*y, g}));
    size_t n = cholesky(g, p, share, l, kept);
    FV_TRY(FV_ARENA_NEW(scratch, n * n, inverse));
    FV_TRY(FV_ARENA_NEW(scratch, n * p, c));
    invert(l, n, p, kept, inverse, c);
    *left = (int32_t)n;
    *added = added_up(g, p, c, n, length);
    FV_TRY(fv_matrix_send(in, c, *left, y->rows, &inverted));
    fv_matmul_nn_args a = {.x = inverted, .w = *y, .y = fv_tensor_of(to, FV_F32, *left, y->cols)};
    return in->be->ops->matmul_nn(in->be, &a);
}

fv_status fv_orthonormal(fv_matrices *in, fv_tensor *y, void **spare) {
    assert(y->dtype == FV_F32 && y->ld == y->cols);
    double added = INFINITY;
    for (int i = 0; i < 2 && added > ADDED_UP; i++) {
        fv_tensor from = *y;
        FV_TRY(pass(in, &from, NEW_SHARE[i], *spare, &y->rows, &added));
        y->data = *spare;
        *spare = from.data;
    }
    return FV_OK;
}
