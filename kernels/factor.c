/* Subspace iteration on a tall matrix. Everything is rows: Q [p, T] and Q M [p, W] hold vectors as
 * rows, so both directions are products that the backend has (linear contracts along rows, combine
 * across them) and nothing is transposed. */
#include "kernels/factor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/eigen.h"
#include "kernels/orthonormal.h"

enum {
    MAX_STEPS = 40,
    GRAM_ROWS = 128, /* rows of a block of G */
};

/* Directions beyond those that are kept: with many, one step is enough for the keys and values of a
 * network; each makes all products longer. */
static int32_t oversample(int32_t rank) { return 16 + rank / 8; }

/* The iteration ends when what it can still gain is less than this share of the square of the
 * error, which is half of it of the error; that is estimated, and what is kept is better: 0.33 % at
 * most over the spectra of tests/unit/test_factor.c. */
static const double GAIN_SHARE = 0.01;

/* The last products, which gain much themselves, are tried when that much is left. */
static const double TRY_SHARE = 0.025;

/* An estimate is that much below the truth at worst. */
static const double DOUBT = 1.4;

/* Shares of ||M||^2 that are rounding: of what is left over; and of a vector's square. */
static const double LEFT_NOISE = 1e-6, RESIDUAL_NOISE = 1e-6;

typedef struct work {
    fv_backend *be;
    fv_arena *room;
    const fv_factor_goal *goal;
    fv_tensor m;       /* [T, W] */
    double norm2;      /* ||M||^2 */
    float unit;        /* M was divided by it */
    fv_factor_way way; /* gram or sketch */
    fv_tensor gram;    /* [T, T], if way says so */
    fv_tensor q, y;    /* [p, T]; Y = Q G */
    float *spare;      /* for as many numbers as q */
    float *b;          /* [p, W], if way does not */
    fv_tensor ritz;    /* [R, T] G u_i, the strongest first, u_i the Ritz vectors in span(Q) */
    double kept;       /* the sum of their values: what Q keeps of ||M||^2 */
    double gain;       /* what the best subspace would keep more, about */
    int32_t steps;
} work;

/* ---- products ---------------------------------------------------------------------------- */

/* y = x w^T */
static fv_status times_rows(work *k, fv_tensor x, fv_tensor w, fv_tensor y) {
    fv_linear_args a = {.x = x, .n_part = 1, .part = {{.w = w, .y = y}}};
    return k->be->ops->linear(k->be, &a);
}

/* y = x w */
static fv_status times(work *k, fv_tensor x, fv_tensor w, fv_tensor y) {
    fv_combine_args a = {.x = x, .w = w, .y = y};
    return k->be->ops->combine(k->be, &a);
}

/* sum of x_i y_i over all elements. */
static double inner(const fv_tensor *x, const fv_tensor *y) {
    const float *a = x->data, *b = y->data;
    size_t n = (size_t)x->rows * (size_t)x->cols, i = 0;
    double acc[8] = {0}, sum = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) acc[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < n; i++) sum += (double)a[i] * (double)b[i];
    for (int j = 0; j < 8; j++) sum += acc[j];
    return sum;
}

static fv_status matrix(fv_arena *room, int32_t rows, int32_t cols, fv_tensor *out) {
    float *data;
    FV_TRY(FV_ARENA_NEW(room, (size_t)rows * (size_t)cols, data));
    *out = fv_tensor_of(data, FV_F32, rows, cols);
    return FV_OK;
}

/* ---- before the iteration ------------------------------------------------------------------ */

/* The largest absolute value. As integers, absolute values of floats are in the same order, and all
 * that is not finite lies above. */
static fv_status largest(const fv_tensor *m, float *top) {
    int32_t most = 0;
    for (int32_t j = 0; j < m->rows; j++) {
        const char *row = (const char *)m->data + sizeof(float) * (size_t)j * (size_t)m->cols;
        for (int32_t i = 0; i < m->cols; i++) {
            int32_t bits;
            memcpy(&bits, row + sizeof bits * (size_t)i, sizeof bits);
            bits &= INT32_MAX;
            most = bits > most ? bits : most;
        }
        if (most >= 0x7f800000)
            return FV_FAIL(FV_EINVAL, "row %d of the matrix to be packed is not finite", j);
    }
    memcpy(top, &most, sizeof most);
    return FV_OK;
}

/* Numbers whose squares f32 cannot hold are divided by a power of two first. */
static fv_status scaled(work *k, const fv_tensor *m, float top) {
    k->m = *m;
    k->unit = 1;
    if (top >= 0x1p-40f && top <= 0x1p40f) return FV_OK;
    if (top > 0x1p100f)
        return FV_FAIL(FV_EINVAL, "numbers up to %g: too large to be packed", (double)top);
    int e = ilogbf(top);
    FV_TRY(matrix(k->room, m->rows, m->cols, &k->m));
    size_t n = (size_t)m->rows * (size_t)m->cols;
    for (size_t i = 0; i < n; i++)
        ((float *)k->m.data)[i] = ldexpf(((const float *)m->data)[i], -e);
    k->unit = ldexpf(1, e); /* the largest number is now in [1, 2) */
    return FV_OK;
}

/* Operations of either way, halved: G is symmetric, and both have two steps as a rule. */
static fv_factor_way choose(int32_t T, int32_t W, int32_t p) {
    double gram = 0.5 * T * T * W + 3.0 * p * T * T, sketch = 5.0 * p * T * W;
    return gram <= sketch ? FV_FACTOR_GRAM : FV_FACTOR_SKETCH;
}

/* Blocks on and left of the diagonal; the rest is their mirror image. */
static fv_status make_gram(work *k) {
    int32_t T = k->m.rows;
    FV_TRY(matrix(k->room, T, T, &k->gram));
    for (int32_t j = 0; j < T; j += GRAM_ROWS) {
        int32_t n = T - j < GRAM_ROWS ? T - j : GRAM_ROWS;
        fv_tensor y = fv_tensor_rows(k->gram, j, n);
        y.cols = j + n;
        FV_TRY(times_rows(k, fv_tensor_rows(k->m, j, n), fv_tensor_rows(k->m, 0, j + n), y));
    }
    float *g = k->gram.data;
    for (size_t i = 0; i < (size_t)T; i++)
        for (size_t j = i + 1; j < (size_t)T; j++) g[i * (size_t)T + j] = g[j * (size_t)T + i];
    return FV_OK;
}

/* Roughly normal numbers, one draw of splitmix64 each: the sum of its four quarters. */
static void randomise(fv_tensor *x, uint64_t seed) {
    size_t n = (size_t)x->rows * (size_t)x->cols;
    for (size_t i = 0; i < n; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        z ^= z >> 31;
        int32_t sum = (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) +
                      (int32_t)(z >> 32 & 0xffff) + (int32_t)(z >> 48) - 2 * 0xffff;
        ((float *)x->data)[i] = (float)sum * 0x1p-16f;
    }
}

/* y = x G */
static fv_status times_gram(work *k, fv_tensor x, fv_tensor y) {
    if (k->way == FV_FACTOR_GRAM) return times_rows(k, x, k->gram, y);
    fv_tensor b = fv_tensor_of(k->b, FV_F32, x.rows, k->m.cols);
    FV_TRY(times(k, x, k->m, b));
    return times_rows(k, b, k->m, y);
}

/* Y = Omega G, or, with half as many operations, Omega M^T. */
static fv_status start(work *k, int32_t p) {
    int32_t T = k->m.rows, W = k->m.cols;
    fv_tensor omega;
    FV_TRY(matrix(k->room, p, T, &k->q));
    FV_TRY(matrix(k->room, p, T, &k->y));
    FV_TRY(matrix(k->room, k->goal->rank < p ? k->goal->rank : p, T, &k->ritz));
    FV_TRY(FV_ARENA_NEW(k->room, (size_t)p * (size_t)T, k->spare));
    if (k->way == FV_FACTOR_GRAM) {
        FV_TRY(make_gram(k));
        omega = k->q;
        randomise(&omega, k->goal->seed);
        return times_rows(k, omega, k->gram, k->y);
    }
    FV_TRY(FV_ARENA_NEW(k->room, (size_t)p * (size_t)W, k->b));
    omega = fv_tensor_of(k->b, FV_F32, p, W);
    randomise(&omega, k->goal->seed);
    return times_rows(k, omega, k->m, k->y);
}

/* ---- the iteration ------------------------------------------------------------------------- */

/* Q = orthonormal(Y), Y = Q G. */
static fv_status step(work *k) {
    float *q = k->q.data;
    FV_TRY(fv_orthonormal(k->be, k->room, &k->y, &k->spare));
    k->q = k->y;
    k->y = fv_tensor_of(q, FV_F32, k->q.rows, k->q.cols);
    return times_gram(k, k->q, k->y);
}

/* What row i of the Ritz vectors lacks: with its residual r = G u - w u, by second-order
 * perturbation, |r|^2 / (w - w'), where w' is the value that r meets outside of Q: at most the
 * smallest inside. */
static double missing(const fv_tensor *ritz, int32_t i, double w, double smallest) {
    fv_tensor row = fv_tensor_rows(*ritz, i, 1);
    double r2 = inner(&row, &row) - w * w;
    if (r2 <= RESIDUAL_NOISE * w * w) return 0;
    return w > smallest ? r2 / (w - smallest) : INFINITY;
}

/* Rayleigh-Ritz: Q G Q^T = Z^T diag(w) Z; u = Z Q, and G u = Z Y. */
static fv_status look(work *k) {
    int32_t p = k->q.rows, R = p < k->goal->rank ? p : k->goal->rank;
    size_t n = (size_t)p * (size_t)p;
    fv_tensor h;
    double *a, *w, *room;
    FV_TRY(matrix(k->room, p, p, &h));
    FV_TRY(FV_ARENA_NEW(k->room, n, a));
    FV_TRY(FV_ARENA_NEW(k->room, p, w));
    FV_TRY(FV_ARENA_NEW(k->room, p, room));
    FV_TRY(times_rows(k, k->q, k->y, h));
    for (size_t i = 0; i < n; i++) a[i] = (double)((float *)h.data)[i];
    FV_TRY(fv_eigen_symmetric(a, p, w, room));
    for (size_t i = 0; i < n; i++) ((float *)h.data)[i] = (float)a[i];
    k->ritz.rows = R;
    FV_TRY(times(k, fv_tensor_rows(h, 0, R), k->y, k->ritz));
    k->kept = k->gain = 0;
    for (int32_t i = 0; i < R; i++) {
        k->kept += w[i];
        if (p > R) k->gain += missing(&k->ritz, i, w[i], w[p - 1]);
    }
    return FV_OK;
}

/* ---- after it ------------------------------------------------------------------------------ */

/* One more half of a step, and another: the basis is G u_i M made orthonormal, and U = M B^T. */
static fv_status project(work *k, fv_tensor *u, fv_tensor *basis) {
    float *spare;
    FV_TRY(matrix(k->room, k->ritz.rows, k->m.cols, basis));
    FV_TRY(FV_ARENA_NEW(k->room, (size_t)basis->rows * (size_t)basis->cols, spare));
    FV_TRY(times(k, k->ritz, k->m, *basis));
    FV_TRY(fv_orthonormal(k->be, k->room, basis, &spare));
    FV_TRY(matrix(k->room, k->m.rows, basis->rows, u));
    return times_rows(k, k->m, *basis, *u);
}

/* Steps until U and B can hardly become better. Those of the estimate's gain that the projection
 * has brought are not to be gained any more. */
static fv_status iterate(work *k, fv_tensor *u, fv_tensor *basis) {
    for (k->steps = 1;; k->steps++) {
        bool last = k->steps == MAX_STEPS;
        FV_TRY(step(k));
        if (k->steps == 1 && k->q.rows > k->goal->rank) continue; /* it never is enough */
        FV_TRY(look(k));
        double left = k->norm2 - k->kept;
        last |= left <= LEFT_NOISE * k->norm2;
        if (!last && k->gain > TRY_SHARE * left) continue;
        FV_TRY(project(k, u, basis));
        double kept = inner(u, u);
        if (last || DOUBT * k->gain - (kept - k->kept) <= GAIN_SHARE * (k->norm2 - kept))
            return FV_OK;
    }
}

/* The fewest columns of U that keep the share of energy that is asked for. */
static int32_t columns_for(const work *k, const fv_tensor *u) {
    double sum = 0, enough = k->goal->energy * k->norm2;
    if (k->goal->energy <= 0) return u->cols;
    for (int32_t r = 0; r < u->cols; r++) {
        const float *x = (const float *)u->data + r;
        for (int32_t j = 0; j < u->rows; j++, x += u->cols) sum += (double)*x * (double)*x;
        if (sum >= enough) return r + 1;
    }
    return u->cols;
}

/* U of its first columns, times `unit`. */
static void cut(fv_tensor *u, int32_t columns, float unit) {
    float *to = u->data;
    if (columns == u->cols && unit == 1) return;
    for (int32_t j = 0; j < u->rows; j++)
        for (int32_t r = 0; r < columns; r++)
            *to++ = unit * ((float *)u->data)[(size_t)j * (size_t)u->cols + (size_t)r];
    *u = fv_tensor_of(u->data, FV_F32, u->rows, columns);
}

static void finish(const work *k, fv_tensor *u, const fv_tensor *basis, fv_factor *out) {
    int32_t rank = columns_for(k, u);
    cut(u, rank, 1);
    double left = k->norm2 - inner(u, u);
    cut(u, rank, k->unit);
    *out = (fv_factor){.rank = rank,
                       .u = u->data,
                       .basis = basis->data,
                       .error = left > 0 ? sqrt(left / k->norm2) : 0,
                       .way = k->way,
                       .steps = k->steps};
}

/* A matrix of zeros has no direction; one that does not matter stands in. */
static fv_status nothing(work *k, const fv_tensor *m, fv_factor *out) {
    *out = (fv_factor){.rank = 1, .way = k->way};
    FV_TRY(FV_ARENA_NEW(k->room, m->rows, out->u));
    FV_TRY(FV_ARENA_NEW(k->room, m->cols, out->basis));
    out->basis[0] = 1;
    return FV_OK;
}

fv_status fv_factorise(fv_backend *be, fv_arena *room, const fv_tensor *m,
                       const fv_factor_goal *goal, fv_factor *out) {
    assert(m->dtype == FV_F32 && m->ld == m->cols && m->rows > 0 && m->cols > 0 && goal->rank > 0);
    work k = {.be = be, .room = room, .goal = goal};
    int32_t T = m->rows, W = m->cols, p = goal->rank + oversample(goal->rank);
    p = p < T ? p : T;
    p = p < W ? p : W;
    k.way = goal->way == FV_FACTOR_AUTO ? choose(T, W, p) : goal->way;
    float top;
    FV_TRY(largest(m, &top));
    if (top == 0) return nothing(&k, m, out);
    FV_TRY(scaled(&k, m, top));
    k.norm2 = inner(&k.m, &k.m);
    fv_tensor u, basis;
    FV_TRY(start(&k, p));
    FV_TRY(iterate(&k, &u, &basis));
    finish(&k, &u, &basis, out);
    return FV_OK;
}
