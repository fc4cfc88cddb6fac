/* Subspace iteration on a tall matrix. Q [p, T] and Q M [p, W] hold vectors as rows, so both directions
 * are products that the backend has (linear contracts along rows, matmul_nn across them) and nothing is
 * transposed. */
#include "factor/factor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "factor/eigen.h"
#include "factor/orthonormal.h"
#include "kernels/factor_rule.h"

enum { GRAM_ROWS = 128 }; /* rows of a block of G */

typedef struct work {
    fv_matrices *in;
    const fv_factor_goal *goal;
    fv_tensor m;       /* [T, W] */
    double norm2;      /* ||M||^2 */
    float unit;        /* the power of two that M was divided by */
    fv_factor_way way; /* gram or sketch */
    fv_tensor gram;    /* [T, T] G, with FV_FACTOR_GRAM */
    fv_tensor q, y;    /* [p, T]; Y = Q G */
    void *spare;       /* for as many numbers as q */
    fv_tensor b;       /* [p, W] products with M, with FV_FACTOR_SKETCH */
    fv_tensor ritz;    /* [R, T] G u_i, the strongest first, u_i the Ritz vectors in span(Q) */
    double kept;       /* the sum of their eigenvalues: the part of ||M||^2 that Q keeps */
    double gain;       /* estimate of how much more the best subspace would keep */
    int32_t steps;
} work;

/* ---- products ---------------------------------------------------------------------------- */

/* y = x w^T in f32, even if the backend computes in bf16, whose rounding exceeds the gain of the last steps:
 * they would never end. */
static fv_status multiply_nt(work *k, fv_tensor x, fv_tensor w, fv_tensor y) {
    fv_linear_args a = {.x = x, .in_f32 = true, .n_part = 1, .part = {{.w = w, .y = y}}};
    return k->in->be->ops->linear(k->in->be, &a);
}

/* y = x w */
static fv_status times(work *k, fv_tensor x, fv_tensor w, fv_tensor y) {
    fv_matmul_nn_args a = {.x = x, .w = w, .y = y};
    return k->in->be->ops->matmul_nn(k->in->be, &a);
}

static size_t count_of(const fv_tensor *x) { return (size_t)x->rows * (size_t)x->cols; }

/* sum of x_i^2 over n numbers. */
static double squares(const float *x, size_t n) {
    size_t i = 0;
    double acc[8] = {0}, sum = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) acc[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int j = 0; j < 8; j++) sum += acc[j];
    return sum;
}

/* Sum of squares of all elements of a matrix. */
static fv_status norm2(work *k, const fv_tensor *x, double *out) {
    float *at;
    FV_TRY(fv_matrix_fetch(k->in, x, &at));
    *out = squares(at, count_of(x));
    return FV_OK;
}

/* ---- before the iteration ------------------------------------------------------------------ */

static fv_status not_finite(int32_t row) {
    return FV_FAIL(FV_EINVAL, "row %d of the KV to be packed has a NaN or infinity", row);
}

/* Finds the largest absolute value. The bits of absolute values, as integers, have the same order as the
 * values, and those of non-finite values are above them. */
static fv_status largest(const fv_tensor *m, const float *numbers, float *top) {
    int32_t most = 0;
    for (int32_t j = 0; j < m->rows; j++) {
        const char *row = (const char *)(numbers + (size_t)j * (size_t)m->cols);
        for (int32_t i = 0; i < m->cols; i++) {
            int32_t bits;
            memcpy(&bits, row + sizeof bits * (size_t)i, sizeof bits);
            bits &= INT32_MAX;
            most = bits > most ? bits : most;
        }
        if (most >= 0x7f800000) return not_finite(j);
    }
    memcpy(top, &most, sizeof most);
    return FV_OK;
}

static fv_status check_size(float top) {
    if (top <= FV_FACTOR_MAX) return FV_OK;
    return FV_FAIL(FV_EINVAL, "KV has numbers up to %g, which are too large to be packed",
                   (double)top);
}

/* Divides M by a power of two if f32 cannot hold the squares of its numbers. *numbers: M on the host. */
static fv_status scaled(work *k, const fv_tensor *m, float top, float **numbers) {
    k->m = *m;
    k->unit = 1;
    if (top >= 0x1p-40f && top <= 0x1p40f) return FV_OK;
    FV_TRY(check_size(top));
    int e = ilogbf(top);
    const float *from = *numbers;
    FV_TRY(FV_ARENA_NEW(k->in->scratch, count_of(m), *numbers));
    for (size_t i = 0; i < count_of(m); i++) (*numbers)[i] = ldexpf(from[i], -e);
    k->unit = ldexpf(1, e); /* the largest number is now in [1, 2) */
    return fv_matrix_send(k->in, *numbers, m->rows, m->cols, &k->m);
}

/* Computes G in blocks on and left of the diagonal, and mirrors them, which gives the same bits. On a
 * device computing the rest is faster than mirroring. */
static fv_status make_gram(work *k) {
    int32_t T = k->m.rows;
    FV_TRY(fv_matrix_new(k->in, T, T, &k->gram));
    if (!fv_matrices_on_host(k->in)) return multiply_nt(k, k->m, k->m, k->gram);
    for (int32_t j = 0; j < T; j += GRAM_ROWS) {
        int32_t n = T - j < GRAM_ROWS ? T - j : GRAM_ROWS;
        fv_tensor y = fv_tensor_rows(k->gram, j, n);
        y.cols = j + n;
        FV_TRY(multiply_nt(k, fv_tensor_rows(k->m, j, n), fv_tensor_rows(k->m, 0, j + n), y));
    }
    float *g = k->gram.data;
    for (size_t i = 0; i < (size_t)T; i++)
        for (size_t j = i + 1; j < (size_t)T; j++) g[i * (size_t)T + j] = g[j * (size_t)T + i];
    return FV_OK;
}

static fv_status randomise(work *k, int32_t rows, int32_t cols, fv_tensor *x) {
    size_t n = (size_t)rows * (size_t)cols;
    float *to;
    FV_TRY(FV_ARENA_NEW(k->in->scratch, n, to));
    for (size_t i = 0; i < n; i++) to[i] = fv_factor_random(k->goal->seed, i);
    return fv_matrix_send(k->in, to, rows, cols, x);
}

/* y = x G */
static fv_status times_gram(work *k, fv_tensor x, fv_tensor y) {
    if (k->way == FV_FACTOR_GRAM) return multiply_nt(k, x, k->gram, y);
    fv_tensor b = fv_tensor_rows(k->b, 0, x.rows);
    FV_TRY(times(k, x, k->m, b));
    return multiply_nt(k, b, k->m, y);
}

/* Y = Omega G, or, with half as many operations, Omega M^T. */
static fv_status start(work *k, int32_t p) {
    int32_t T = k->m.rows, W = k->m.cols;
    fv_tensor omega, spare;
    FV_TRY(fv_matrix_new(k->in, p, T, &k->q));
    FV_TRY(fv_matrix_new(k->in, p, T, &k->y));
    FV_TRY(fv_matrix_new(k->in, k->goal->rank < p ? k->goal->rank : p, T, &k->ritz));
    FV_TRY(fv_matrix_new(k->in, p, T, &spare));
    k->spare = spare.data;
    if (k->way == FV_FACTOR_GRAM) {
        FV_TRY(make_gram(k));
        FV_TRY(randomise(k, p, T, &omega));
        return multiply_nt(k, omega, k->gram, k->y);
    }
    FV_TRY(fv_matrix_new(k->in, p, W, &k->b));
    FV_TRY(randomise(k, p, W, &omega));
    return multiply_nt(k, omega, k->m, k->y);
}

/* ---- the iteration ------------------------------------------------------------------------- */

/* Q = orthonormal(Y), Y = Q G. */
static fv_status step(work *k) {
    void *q = k->q.data;
    FV_TRY(fv_orthonormal(k->in, &k->y, &k->spare));
    k->q = k->y;
    k->y = fv_tensor_of(q, FV_F32, k->q.rows, k->q.cols);
    return times_gram(k, k->q, k->y);
}

/* Q G Q^T = Z^T diag(w) Z; gives w and the first R rows of Z. */
static fv_status eigenvectors(work *k, int32_t R, double *w, fv_tensor *z) {
    int32_t p = k->q.rows;
    size_t n = (size_t)p * (size_t)p;
    fv_tensor h;
    float *at;
    double *a, *scratch;
    FV_TRY(fv_matrix_new(k->in, p, p, &h));
    FV_TRY(FV_ARENA_NEW(k->in->scratch, n, a));
    FV_TRY(FV_ARENA_NEW(k->in->scratch, FV_EIGEN_SCRATCH * p, scratch));
    FV_TRY(multiply_nt(k, k->q, k->y, h));
    FV_TRY(fv_matrix_fetch(k->in, &h, &at));
    for (size_t i = 0; i < n; i++) a[i] = (double)at[i];
    FV_TRY(fv_eigen_symmetric(a, p, w, scratch));
    for (size_t i = 0; i < n; i++) at[i] = (float)a[i];
    return fv_matrix_send(k->in, at, R, p, z);
}

/* Rayleigh-Ritz: u = Z Q, and G u = Z Y. */
static fv_status look(work *k) {
    int32_t p = k->q.rows, R = p < k->goal->rank ? p : k->goal->rank;
    size_t T = (size_t)k->q.cols;
    double *w;
    float *ritz;
    fv_tensor z;
    FV_TRY(FV_ARENA_NEW(k->in->scratch, p, w));
    FV_TRY(eigenvectors(k, R, w, &z));
    k->ritz.rows = R;
    FV_TRY(times(k, z, k->y, k->ritz));
    FV_TRY(fv_matrix_fetch(k->in, &k->ritz, &ritz));
    k->kept = k->gain = 0;
    for (int32_t i = 0; i < R; i++) {
        k->kept += w[i];
        if (p > R) k->gain += fv_factor_missing(squares(ritz + (size_t)i * T, T), w[i], w[p - 1]);
    }
    return FV_OK;
}

/* ---- after the iteration ------------------------------------------------------------------- */

/* Computes the factors: the basis is G u_i M made orthonormal, and U = M B^T. */
static fv_status project(work *k, fv_tensor *u, fv_tensor *basis) {
    fv_tensor spare;
    FV_TRY(fv_matrix_new(k->in, k->ritz.rows, k->m.cols, basis));
    FV_TRY(fv_matrix_new(k->in, basis->rows, basis->cols, &spare));
    FV_TRY(times(k, k->ritz, k->m, *basis));
    FV_TRY(fv_orthonormal(k->in, basis, &spare.data));
    FV_TRY(fv_matrix_new(k->in, k->m.rows, basis->rows, u));
    return multiply_nt(k, k->m, *basis, *u);
}

/* Iterates until U and B can hardly improve. */
static fv_status iterate(work *k, fv_tensor *u, fv_tensor *basis) {
    for (k->steps = 1;; k->steps++) {
        bool last;
        double kept;
        FV_TRY(step(k));
        if (k->steps == 1 && k->q.rows > k->goal->rank) continue; /* one step is never enough */
        FV_TRY(look(k));
        if (!fv_factor_try_next(k->norm2, k->kept, k->gain, k->steps, &last)) continue;
        FV_TRY(project(k, u, basis));
        FV_TRY(norm2(k, u, &kept));
        if (last || fv_factor_enough(k->norm2, k->kept, k->gain, kept)) return FV_OK;
    }
}

/* The fewest columns of U [T, R] that keep the requested share of energy. */
static int32_t columns_for(const fv_factor_goal *goal, double norm2, const float *u, int32_t T,
                           int32_t R) {
    double sum = 0, enough = goal->energy * norm2;
    if (goal->energy <= 0) return R;
    for (int32_t r = 0; r < R; r++) {
        const float *x = u + r;
        for (int32_t j = 0; j < T; j++, x += R) sum += (double)*x * (double)*x;
        if (sum >= enough) return r + 1;
    }
    return R;
}

/* Keeps the first columns of U [T, R], times `unit`, in place. */
static void keep_columns(float *u, int32_t T, int32_t R, int32_t columns, float unit) {
    float *to = u;
    if (columns == R && unit == 1) return;
    for (int32_t j = 0; j < T; j++)
        for (int32_t r = 0; r < columns; r++) *to++ = unit * u[(size_t)j * (size_t)R + (size_t)r];
}

/* Cuts f->u [T, R] and f->basis, the factors of M / unit, to the requested rank, and scales U back. */
static void finish(const fv_factor_goal *goal, double norm2, float unit, int32_t T, int32_t R,
                   fv_factor *f) {
    f->rank = columns_for(goal, norm2, f->u, T, R);
    keep_columns(f->u, T, R, f->rank, 1);
    double left = norm2 - squares(f->u, (size_t)T * (size_t)f->rank);
    keep_columns(f->u, T, f->rank, f->rank, unit);
    f->error = left > 0 ? sqrt(left / norm2) : 0;
}

/* The factors of a matrix of zeros: U is 0, and the basis an arbitrary direction. */
static fv_status factors_of_zeros(fv_arena *scratch, const fv_tensor *m, fv_factor_way way,
                                  fv_factor *out) {
    *out = (fv_factor){.rank = 1, .way = way};
    FV_TRY(FV_ARENA_NEW(scratch, m->rows, out->u));
    FV_TRY(FV_ARENA_NEW(scratch, m->cols, out->basis));
    out->basis[0] = 1;
    return FV_OK;
}

static fv_status factorise(work *k, const fv_tensor *m, int32_t p, fv_factor *out) {
    float top, *numbers;
    fv_tensor u, basis;
    FV_TRY(fv_matrix_fetch(k->in, m, &numbers));
    FV_TRY(largest(m, numbers, &top));
    if (top == 0) return factors_of_zeros(k->in->scratch, m, k->way, out);
    FV_TRY(scaled(k, m, top, &numbers));
    k->norm2 = squares(numbers, count_of(m));
    FV_TRY(start(k, p));
    FV_TRY(iterate(k, &u, &basis));
    fv_factor f = {.way = k->way, .steps = k->steps};
    FV_TRY(fv_matrix_fetch(k->in, &u, &f.u));
    FV_TRY(fv_matrix_fetch(k->in, &basis, &f.basis));
    finish(k->goal, k->norm2, k->unit, u.rows, u.cols, &f);
    *out = f;
    return FV_OK;
}

/* Number of vectors to iterate; *way: how. */
static int32_t vectors(const fv_tensor *m, const fv_factor_goal *goal, fv_factor_way *way) {
    int32_t T = m->rows, W = m->cols, p = goal->rank + fv_factor_oversample(goal->rank);
    p = p < T ? p : T;
    p = p < W ? p : W;
    *way = goal->way;
    if (*way == FV_FACTOR_AUTO)
        *way = fv_factor_sketches(T, W, p) ? FV_FACTOR_SKETCH : FV_FACTOR_GRAM;
    return p;
}

static void check_args(const fv_tensor *m, const fv_factor_goal *goal) {
    assert(m->dtype == FV_F32 && m->ld == m->cols && m->rows > 0 && m->cols > 0 && goal->rank > 0);
    (void)m, (void)goal;
}

fv_status fv_factorise(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                       const fv_factor_goal *goal, fv_factor *out) {
    check_args(m, goal);
    fv_matrices in = {.be = be, .scratch = scratch};
    work k = {.in = &in, .goal = goal};
    int32_t p = vectors(m, goal, &k.way);
    fv_status st = factorise(&k, m, p, out);
    fv_matrices_fini(&in);
    return st;
}

/* ---- many matrices ------------------------------------------------------------------------- */

static fv_status queue_measure(fv_matrices *in, const fv_tensor *m, const fv_factor_goal *goal,
                               fv_factor_task *t) {
    fv_factor_way way;
    check_args(m, goal);
    int32_t p = vectors(m, goal, &way), R = goal->rank < p ? goal->rank : p;
    *t = (fv_factor_task){
        .m = *m, .rank = goal->rank, .sketch = way == FV_FACTOR_SKETCH, .seed = goal->seed};
    FV_TRY(fv_matrix_new(in, m->rows, R, &t->u));
    return fv_matrix_new(in, R, m->cols, &t->basis);
}

/* Drops rows of B that are 0 and their columns of U [T, R]; returns how many are left. */
static int32_t drop_nothing(float *u, float *basis, int32_t T, int32_t R, int32_t W) {
    int32_t n = 0;
    for (int32_t r = 0; r < R; r++) {
        const float *row = basis + (size_t)r * (size_t)W;
        if (squares(row, (size_t)W) < 0.5) continue;
        if (n != r) memcpy(basis + (size_t)n * (size_t)W, row, (size_t)W * sizeof *row);
        for (int32_t j = 0; j < T && n != r; j++) u[j * R + n] = u[j * R + r];
        n++;
    }
    keep_columns(u, T, R, n, 1);
    return n;
}

static fv_status take(fv_matrices *in, fv_factor_task *t, const fv_factor_goal *goal,
                      fv_factor *out) {
    int32_t T = t->m.rows, R = t->u.cols, W = t->m.cols;
    fv_factor f = {.way = t->sketch ? FV_FACTOR_SKETCH : FV_FACTOR_GRAM, .steps = t->steps};
    if (t->bad_row >= 0) return not_finite(t->bad_row);
    FV_TRY(check_size(t->top));
    if (t->top == 0) return factors_of_zeros(in->scratch, &t->m, f.way, out);
    FV_TRY(fv_matrix_fetch(in, &t->u, &f.u));
    FV_TRY(fv_matrix_fetch(in, &t->basis, &f.basis));
    R = drop_nothing(f.u, f.basis, T, R, W);
    finish(goal, t->norm2, t->unit, T, R, &f);
    *out = f;
    return FV_OK;
}

static fv_status together(fv_matrices *in, const fv_tensor *m, const fv_factor_goal *goal,
                          int32_t n, fv_factor *out, int32_t *bad) {
    fv_factor_task *tasks;
    *bad = 0;
    FV_TRY(FV_ARENA_NEW(in->scratch, n, tasks));
    for (int32_t i = 0; i < n; i++) FV_TRY(queue_measure(in, &m[i], &goal[i], &tasks[i]));
    FV_TRY(in->be->ops->factorise(in->be, tasks, n));
    for (*bad = 0; *bad < n; ++*bad) FV_TRY(take(in, &tasks[*bad], &goal[*bad], &out[*bad]));
    return FV_OK;
}

fv_status fv_factorise_all(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                           const fv_factor_goal *goal, int32_t n, fv_factor *out, int32_t *bad) {
    fv_matrices in = {.be = be, .scratch = scratch};
    fv_status st = FV_EUNSUPPORTED;
    if (n == 0) return FV_OK;
    if (be->ops->factorise) st = together(&in, m, goal, n, out, bad);
    fv_matrices_fini(&in);
    if (st != FV_EUNSUPPORTED) return st;
    for (*bad = 0; *bad < n; ++*bad)
        FV_TRY(fv_factorise(be, scratch, &m[*bad], &goal[*bad], &out[*bad]));
    return FV_OK;
}
