/* Factors many matrices together: the iteration of factor/factor.c, step by step for all that have not
 * converged. Large products go to cuBLAS one by one, the p x p work is one launch for all (factor.cu),
 * and the host waits twice a step, for the numbers by which it decides which matrices continue. A row
 * that Cholesky drops stays as a row of zeros, so that no shape depends on data. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/factor.h"
#include "kernels/cuda/placement.h"
#include "kernels/factor_rule.h"

typedef struct work {
    fv_factor_task *t;
    int32_t p, R;
    fv_tensor gram;    /* [T, T] G; or with `sketch`: */
    fv_tensor b;       /* [p, W] products with M */
    fv_tensor q, y;    /* [p, T] */
    fv_tensor spare;   /* [p, T] */
    fv_tensor wide;    /* [R, W] spare for the basis */
    fv_tensor ritz;    /* [R, T] */
    fv_tensor h, z;    /* [p, p] H; L^-1, or eigenvectors */
    double *g, *e, *w; /* [p, p], [p, p], [p] */
    double norm2, kept, gain;
    bool last, done, tries;
    fv_buf buf;
} work;

typedef struct batch {
    fv_backend *be;
    fv_cuda *c;
    work *k; /* [n] */
    int32_t n, most_p;
    void *items;    /* [n] items of any kernel */
    double *square; /* [rows] on the host, of the last measure(): sums of squares, */
    int32_t *top;   /* [rows] and bits of the largest absolute values */
    fv_buf measure; /* both on the device */
    int32_t rows;   /* the most rows of one measure() */
} batch;

/* ---- memory ------------------------------------------------------------------------------- */

static fv_tensor lay_matrix(fv_placement *l, int32_t rows, int32_t cols) {
    uint32_t at;
    size_t n = (size_t)rows * (size_t)cols;
    return fv_tensor_of(fv_place(l, (n + 63) / 64 * 64, sizeof(float), &at), FV_F32, rows, cols);
}

static void lay_work(work *k, fv_placement *l) {
    const fv_factor_task *t = k->t;
    int32_t T = t->m.rows, W = t->m.cols, p = k->p;
    size_t square = (size_t)p * (size_t)p;
    uint32_t at;
    k->g = fv_place(l, square, sizeof(double), &at);
    k->e = fv_place(l, square, sizeof(double), &at);
    k->w = fv_place(l, (size_t)p, sizeof(double), &at);
    if (t->sketch)
        k->b = lay_matrix(l, p, W);
    else
        k->gram = lay_matrix(l, T, T);
    k->q = lay_matrix(l, p, T);
    k->y = lay_matrix(l, p, T);
    k->spare = lay_matrix(l, p, T);
    k->wide = lay_matrix(l, k->R, W);
    k->ritz = lay_matrix(l, k->R, T);
    k->h = lay_matrix(l, p, p);
    k->z = lay_matrix(l, p, p);
}

static fv_status open_work(fv_cuda *c, fv_factor_task *t, work *k) {
    int32_t T = t->m.rows, W = t->m.cols, least = T < W ? T : W;
    *k = (work){.t = t, .p = t->rank + fv_factor_oversample(t->rank)};
    k->p = k->p < least ? k->p : least;
    k->R = t->rank < k->p ? t->rank : k->p;
    assert(t->m.dtype == FV_F32 && t->m.ld == W && T > 0 && W > 0 && t->rank > 0);
    assert(t->u.rows == T && t->u.cols == k->R && t->basis.rows == k->R && t->basis.cols == W);
    fv_placement size = {0};
    lay_work(k, &size);
    FV_TRY(fv_buf_alloc(&c->device, size.bytes, FV_BUF_DEVICE, &k->buf));
    fv_placement l = {.base = k->buf.data};
    lay_work(k, &l);
    t->steps = 0;
    t->unit = 1;
    return FV_OK;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static fv_status open_batch(batch *b, fv_factor_task *tasks) {
    size_t item = larger(sizeof(fv_cuda_rows),
                         larger(sizeof(fv_cuda_cholesky), sizeof(fv_cuda_eigen))),
           n = (size_t)b->n, rows = 0;
    b->k = calloc(n, sizeof *b->k);
    b->items = calloc(n, item);
    if (!b->k || !b->items) return FV_FAIL(FV_ENOMEM, "out of memory for %d matrices", b->n);
    for (int32_t i = 0; i < b->n; i++) {
        FV_TRY(open_work(b->c, &tasks[i], &b->k[i]));
        rows += (size_t)tasks[i].m.rows + (size_t)b->k[i].p; /* rows of M and U; eigenvalues */
        b->most_p = b->k[i].p > b->most_p ? b->k[i].p : b->most_p;
    }
    if (rows > INT32_MAX / 16) return FV_FAIL(FV_EINVAL, "cannot factor %zu rows at once", rows);
    b->square = malloc(rows * sizeof *b->square);
    b->top = malloc(rows * sizeof *b->top);
    if (!b->square || !b->top) return FV_FAIL(FV_ENOMEM, "out of memory for %zu rows", rows);
    b->rows = (int32_t)rows;
    size_t bytes = rows * (sizeof(double) + sizeof(int32_t));
    return fv_buf_alloc(&b->c->device, bytes, FV_BUF_DEVICE, &b->measure);
}

static void close_batch(batch *b) {
    for (int32_t i = 0; b->k && i < b->n; i++) fv_buf_free(&b->k[i].buf);
    fv_buf_free(&b->measure);
    free(b->k);
    free(b->items);
    free(b->square);
    free(b->top);
}

/* ---- products ----------------------------------------------------------------------------- */

/* y = x w^T */
static fv_status times_rows(batch *b, fv_tensor x, fv_tensor w, fv_tensor y) {
    return fv_blas_gemm(b->c->blas, &x, &w, &y, 0);
}

/* y = x w */
static fv_status times(batch *b, fv_tensor x, fv_tensor w, fv_tensor y) {
    return fv_blas_matmul_nn(b->c->blas, &x, &w, &y);
}

/* y = x G */
static fv_status times_gram(batch *b, const work *k, fv_tensor x, fv_tensor y) {
    if (!k->t->sketch) return times_rows(b, x, k->gram, y);
    FV_TRY(times(b, x, k->t->m, k->b));
    return times_rows(b, k->b, k->t->m, y);
}

/* ---- measurements for the host ------------------------------------------------------------- */

/* Measures each row of n matrices: into b->square and b->top, matrix after matrix. */
static fv_status measure(batch *b, int32_t n, int32_t rows) {
    double *square = b->measure.data;
    int32_t *top = (int32_t *)(void *)(square + b->rows);
    fv_device *dev = &b->c->device;
    if (n == 0) return FV_OK;
    FV_TRY(fv_cuda_rows_measure(b->c, b->items, n, rows, square, top));
    FV_TRY(dev->ops->copy_async(dev, b->square, square, (size_t)rows * sizeof *square));
    FV_TRY(dev->ops->copy_async(dev, b->top, top, (size_t)rows * sizeof *top));
    return b->be->ops->sync(b->be);
}

static void ask(batch *b, int32_t i, const fv_tensor *x, int32_t *rows) {
    ((fv_cuda_rows *)b->items)[i] = (fv_cuda_rows){x->data, x->cols, *rows};
    *rows += x->rows;
}

static double sum_of(const double *x, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* ---- before the iteration ------------------------------------------------------------------- */

/* Divides M by a power of two if f32 cannot hold the squares of its numbers. */
static fv_status scale(batch *b, work *k) {
    fv_factor_task *t = k->t;
    if (t->top >= 0x1p-40f && t->top <= 0x1p40f) return FV_OK;
    int e = ilogbf(t->top);
    t->unit = ldexpf(1, e);
    k->norm2 = ldexp(k->norm2, -2 * e);
    return fv_cuda_scale(b->c, &t->m, ldexpf(1, -e));
}

/* Measures all M; those that have no factors are done. */
static fv_status measure_all(batch *b) {
    int32_t rows = 0;
    for (int32_t i = 0; i < b->n; i++) ask(b, i, &b->k[i].t->m, &rows);
    FV_TRY(measure(b, b->n, rows));
    for (int32_t i = 0, at = 0; i < b->n; i++) {
        work *k = &b->k[i];
        fv_factor_task *t = k->t;
        int32_t top = 0;
        t->bad_row = -1;
        for (int32_t j = t->m.rows; j-- > 0;) {
            if (b->top[at + j] >= 0x7f800000) t->bad_row = j;
            top = b->top[at + j] > top ? b->top[at + j] : top;
        }
        memcpy(&t->top, &top, sizeof top);
        t->norm2 = k->norm2 = sum_of(b->square + at, t->m.rows);
        at += t->m.rows;
        k->done = t->bad_row >= 0 || top == 0 || t->top > FV_FACTOR_MAX;
        if (!k->done) FV_TRY(scale(b, k));
    }
    return FV_OK;
}

/* Y = Omega G, or, with half as many operations, Omega M^T. */
static fv_status start(batch *b, work *k) {
    fv_factor_task *t = k->t;
    t->norm2 = k->norm2;
    if (t->sketch) {
        FV_TRY(fv_cuda_random(b->c, &k->b, t->seed));
        return times_rows(b, k->b, t->m, k->y);
    }
    FV_TRY(fv_blas_gram(b->c->blas, &t->m, &k->gram));
    FV_TRY(fv_cuda_random(b->c, &k->q, t->seed));
    return times_rows(b, k->q, k->gram, k->y);
}

/* ---- the iteration --------------------------------------------------------------------------- */

/* Which matrix of a work is made orthonormal. */
typedef enum subject { OF_Y = 0, OF_BASIS } subject;

static fv_tensor *subject_of(work *k, subject what) { return what == OF_Y ? &k->y : &k->t->basis; }

/* Does a pass of CholeskyQR: computes L^-1 Y in the spare matrix, and swaps the two. */
static fv_status orthonormal_pass(batch *b, subject what, double share) {
    fv_cuda_cholesky *item = b->items;
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (k->done || (what == OF_BASIS && !k->tries)) continue;
        fv_tensor *y = subject_of(k, what);
        FV_TRY(fv_cuda_syrk_there(b->c, y, k->g));
        item[n++] = (fv_cuda_cholesky){k->g, k->e, k->h.data, y->rows};
    }
    if (n == 0) return FV_OK;
    FV_TRY(fv_cuda_cholesky_invert(b->c, item, n, b->most_p, share));
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (k->done || (what == OF_BASIS && !k->tries)) continue;
        fv_tensor *y = subject_of(k, what), *to = what == OF_Y ? &k->spare : &k->wide, was = *y;
        fv_tensor l = fv_tensor_of(k->h.data, FV_F32, y->rows, y->rows);
        FV_TRY(times(b, l, *y, *to));
        *y = *to;
        *to = was;
    }
    return FV_OK;
}

/* Makes rows orthonormal, in two passes: the second repairs what rounding left. Two passes swap twice, so
 * the result is in place. */
static fv_status orthonormal(batch *b, subject what) {
    FV_TRY(orthonormal_pass(b, what, FV_FACTOR_NEW_SHARE_FIRST));
    return orthonormal_pass(b, what, FV_FACTOR_NEW_SHARE_SECOND);
}

/* Q = orthonormal(Y), Y = Q G. */
static fv_status step(batch *b) {
    FV_TRY(orthonormal(b, OF_Y));
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (k->done) continue;
        fv_tensor q = k->q;
        k->t->steps++;
        k->q = k->y;
        k->y = q;
        FV_TRY(times_gram(b, k, k->q, k->y));
    }
    return FV_OK;
}

/* Whether to measure convergence: not after the first step, which is never enough unless all vectors are
 * used. */
static bool looks(const work *k) { return !k->done && (k->t->steps > 1 || k->p == k->R); }

/* Rayleigh-Ritz: Q G Q^T = Z^T diag(w) Z; u = Z Q, and G u = Z Y. */
static fv_status ritz(batch *b) {
    fv_cuda_eigen *item = b->items;
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (!looks(k)) continue;
        FV_TRY(times_rows(b, k->q, k->y, k->h));
        item[n++] = (fv_cuda_eigen){k->h.data, k->g, k->e, k->w, k->z.data, k->p};
    }
    if (n) FV_TRY(fv_cuda_eigenvectors(b->c, item, n, b->most_p));
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (looks(k)) FV_TRY(times(b, fv_tensor_rows(k->z, 0, k->R), k->y, k->ritz));
    }
    return FV_OK;
}

/* Computes the energy that Q keeps and could still gain, from the eigenvalues w [p] and the squares of the
 * R rows of G u. */
static void judge(work *k, const double *w, const double *r2) {
    k->kept = k->gain = 0;
    for (int32_t r = 0; r < k->R; r++) {
        k->kept += w[r];
        if (k->p > k->R) k->gain += fv_factor_missing(r2[r], w[r], w[k->p - 1]);
    }
    k->tries = fv_factor_try_next(k->norm2, k->kept, k->gain, k->t->steps, &k->last);
}

static fv_status look(batch *b) {
    fv_device *dev = &b->c->device;
    int32_t n = 0, rows = 0, at = b->rows;
    FV_TRY(ritz(b));
    for (int32_t i = 0; i < b->n; i++) b->k[i].tries = false;
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (!looks(k)) continue;
        ask(b, n++, &k->ritz, &rows);
        at -= k->p; /* eigenvalues are copied to the host after the rows' squares */
        FV_TRY(dev->ops->copy_async(dev, b->square + at, k->w, (size_t)k->p * sizeof *k->w));
    }
    FV_TRY(measure(b, n, rows));
    rows = 0, at = b->rows;
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (!looks(k)) continue;
        at -= k->p;
        judge(k, b->square + at, b->square + rows);
        rows += k->R;
    }
    return FV_OK;
}

/* ---- after the iteration --------------------------------------------------------------------- */

/* Computes the factors: the basis is G u_i M made orthonormal, and U = M B^T. */
static fv_status project(batch *b) {
    int32_t n = 0, rows = 0;
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (k->tries) FV_TRY(times(b, k->ritz, k->t->m, k->t->basis));
    }
    FV_TRY(orthonormal(b, OF_BASIS));
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (!k->tries) continue;
        FV_TRY(times_rows(b, k->t->m, k->t->basis, k->t->u));
        ask(b, n++, &k->t->u, &rows);
    }
    FV_TRY(measure(b, n, rows));
    rows = 0;
    for (int32_t i = 0; i < b->n; i++) {
        work *k = &b->k[i];
        if (!k->tries) continue;
        double now = sum_of(b->square + rows, k->t->u.rows);
        rows += k->t->u.rows;
        k->done = k->last || fv_factor_enough(k->norm2, k->kept, k->gain, now);
    }
    return FV_OK;
}

static bool any_left(const batch *b) {
    for (int32_t i = 0; i < b->n; i++)
        if (!b->k[i].done) return true;
    return false;
}

static fv_status run(batch *b, fv_factor_task *tasks) {
    FV_TRY(open_batch(b, tasks));
    FV_TRY(measure_all(b));
    for (int32_t i = 0; i < b->n; i++)
        if (!b->k[i].done) FV_TRY(start(b, &b->k[i]));
    while (any_left(b)) {
        FV_TRY(step(b));
        FV_TRY(look(b));
        FV_TRY(project(b));
    }
    return FV_OK;
}

fv_status fv_cuda_factorise(fv_backend *be, fv_factor_task *tasks, int32_t n) {
    batch b = {.be = be, .c = fv_cuda_of(be), .n = n};
    if (!b.c->blas)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "--isa exact: factoring matrices together has no canonical order of summation");
    if (n == 0) return FV_OK;
    fv_status st = run(&b, tasks);
    close_batch(&b);
    return st;
}
