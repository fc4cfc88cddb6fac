/* Subspace iteration over matrices that are shown one at a time: see own.h. */
#include "prefill-worker/pack/own.h"

#include <math.h>
#include <string.h>

#include "factor/eigen.h"
#include "factor/orthonormal.h"
#include "kernels/factor_rule.h"

enum { SEED = 20, TOP = 127 };

fv_status fv_own_begin(fv_arena *arena, int32_t n, int32_t most, fv_own *own) {
    int32_t p = most + FV_OWN_SPARE < n ? most + FV_OWN_SPARE : n;
    size_t all = (size_t)p * (size_t)n;
    *own = (fv_own){.n = n, .p = p, .most = most < p ? most : p};
    FV_TRY(FV_ARENA_NEW(arena, all, own->q));
    FV_TRY(FV_ARENA_NEW(arena, all, own->y));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)own->most, own->u));
    for (size_t i = 0; i < all; i++) own->q[i] = fv_factor_random(SEED, i);
    return FV_OK;
}

/* y [M, W] = x E, x [M, n] on the host; columns of x past E's rows are ignored. */
static fv_status times(const fv_own *own, fv_matrices *in, const float *x, int32_t M,
                       const fv_tensor *e, fv_tensor *y) {
    size_t rows = (size_t)e->rows, n = (size_t)own->n;
    fv_matmul_nn_args a = {.w = *e};
    float *few;
    FV_TRY(FV_ARENA_NEW(in->scratch, (size_t)M * rows, few));
    for (size_t i = 0; i < (size_t)M; i++) memcpy(few + i * rows, x + i * n, rows * sizeof *few);
    FV_TRY(fv_matrix_send(in, few, M, e->rows, &a.x));
    FV_TRY(fv_matrix_new(in, M, e->cols, y));
    a.y = *y;
    return in->be->ops->matmul_nn(in->be, &a);
}

fv_status fv_own_add_matrix(fv_own *own, fv_matrices *in, const fv_tensor *e, double w) {
    size_t rows = (size_t)e->rows, n = (size_t)own->n;
    fv_linear_args a = {.n_part = 1, .part = {{.w = *e}}};
    float *y;
    if (own->p == 0 || w == 0) return FV_OK;
    FV_TRY(times(own, in, own->q, own->p, e, &a.x));
    FV_TRY(fv_matrix_new(in, own->p, e->rows, &a.part[0].y));
    FV_TRY(in->be->ops->linear(in->be, &a));
    FV_TRY(fv_matrix_fetch(in, &a.part[0].y, &y));
    for (size_t i = 0; i < (size_t)own->p; i++)
        for (size_t j = 0; j < rows; j++) own->y[i * n + j] += w * (double)*y++;
    return FV_OK;
}

fv_status fv_own_finish_pass(fv_own *own, fv_matrices *in) {
    size_t all = (size_t)own->p * (size_t)own->n;
    fv_tensor y, spare;
    float *q;
    if (own->p == 0) return FV_OK;
    for (size_t i = 0; i < all; i++) own->q[i] = (float)own->y[i];
    FV_TRY(fv_matrix_send(in, own->q, own->p, own->n, &y));
    FV_TRY(fv_matrix_new(in, own->p, own->n, &spare));
    FV_TRY(fv_orthonormal(in, &y, &spare.data));
    FV_TRY(fv_matrix_fetch(in, &y, &q));
    own->p = y.rows;
    own->most = own->most < own->p ? own->most : own->p;
    memmove(own->q, q, (size_t)own->p * (size_t)own->n * sizeof *q);
    memset(own->y, 0, all * sizeof *own->y);
    return FV_OK;
}

/* Q G Q^T = Z^T diag(w) Z. */
static fv_status ritz(const fv_own *own, fv_arena *arena, double **z, double **w) {
    size_t p = (size_t)own->p, n = (size_t)own->n;
    double *scratch;
    FV_TRY(FV_ARENA_NEW(arena, p * p, *z));
    FV_TRY(FV_ARENA_NEW(arena, p, *w));
    FV_TRY(FV_ARENA_NEW(arena, FV_EIGEN_SCRATCH * p, scratch));
    for (size_t a = 0; a < p; a++)
        for (size_t b = 0; b <= a; b++)
            for (size_t j = 0; j < n; j++)
                (*z)[a * p + b] += (double)own->q[a * n + j] * own->y[b * n + j];
    return fv_eigen_symmetric(*z, own->p, *w, scratch);
}

/* Sets column i of u to row i of Z Q, scaled and rounded. */
static void round_column(fv_own *own, const double *z, double *x, int32_t i) {
    size_t p = (size_t)own->p, n = (size_t)own->n, r = (size_t)own->r;
    double top = 0;
    for (size_t j = 0; j < n; j++) {
        x[j] = 0;
        for (size_t a = 0; a < p; a++) x[j] += z[(size_t)i * p + a] * (double)own->q[a * n + j];
        top = fabs(x[j]) > top ? fabs(x[j]) : top;
    }
    for (size_t j = 0; j < n; j++)
        own->u[j * r + (size_t)i] = top > 0 ? (float)round(x[j] / top * TOP) : 0;
}

fv_status fv_own_choose(fv_own *own, fv_arena *arena, double lost, double allowed) {
    double *z, *w, *x;
    if (own->p == 0) return FV_OK;
    FV_TRY(ritz(own, arena, &z, &w));
    FV_TRY(FV_ARENA_NEW(arena, own->n, x));
    while (own->r < own->most && lost > allowed && w[own->r] > 0) lost -= w[own->r++];
    for (int32_t i = 0; i < own->r; i++) round_column(own, z, x, i);
    return FV_OK;
}

fv_status fv_own_directions(const fv_own *own, fv_matrices *in, const fv_tensor *e, float *o) {
    size_t r = (size_t)own->r, n = (size_t)own->n, W = (size_t)e->cols;
    fv_tensor y;
    float *x, *from;
    FV_TRY(FV_ARENA_NEW(in->scratch, r * n, x));
    for (size_t i = 0; i < r; i++)
        for (size_t j = 0; j < n; j++) x[i * n + j] = own->u[j * r + i];
    FV_TRY(times(own, in, x, own->r, e, &y));
    FV_TRY(fv_matrix_fetch(in, &y, &from));
    for (size_t i = 0; i < r; i++) {
        double square = 0;
        for (size_t j = 0; j < (size_t)e->rows; j++)
            square += (double)x[i * n + j] * (double)x[i * n + j];
        for (size_t c = 0; c < W; c++)
            o[i * W + c] = square > 0 ? (float)((double)from[i * W + c] / square) : 0;
    }
    return FV_OK;
}
