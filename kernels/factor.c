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
    OVERSAMPLE = 8,
    MAX_STEPS = 40,
    GRAM_ROWS = 128, /* rows of a block of G */
};

/* The iteration stops when what it can still gain is less than this share of the square of the
 * error, which is half of it of the error. The subspace is larger than what is kept of it, and what
 * is kept is better: 0.36 % at most over the spectra of tests/unit/test_factor.c. */
static const double GAIN_SHARE = 0.01;

/* Shares of ||M||^2 that are rounding: of what is left over, and of a step's gain. */
static const double LEFT_NOISE = 1e-6, GAIN_NOISE = 3e-8;

typedef struct work {
    fv_backend *be;
    fv_arena *room;
    const fv_factor_goal *goal;
    fv_tensor m;       /* [T, W] */
    double norm2;      /* ||M||^2 */
    float unit;        /* M was divided by it */
    fv_factor_way way; /* gram or sketch */
    fv_tensor gram;    /* [T, T], if way says so */
    fv_tensor q, b;    /* [p, T]; [p, W] = Q M */
    float *q_spare, *b_spare;
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

static fv_status largest(const fv_tensor *m, float *top) {
    *top = 0;
    for (int32_t j = 0; j < m->rows; j++) {
        const float *row = (const float *)m->data + (size_t)j * (size_t)m->cols;
        for (int32_t i = 0; i < m->cols; i++) {
            float x = fabsf(row[i]);
            if (!(x < INFINITY))
                return FV_FAIL(FV_EINVAL, "row %d of the matrix to be packed is not finite", j);
            *top = x > *top ? x : *top;
        }
    }
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

/* Operations of either way, halved: G is symmetric; both need the sketch and the last product. */
static fv_factor_way choose(int32_t T, int32_t W, int32_t p) {
    double gram = 0.5 * T * T * W + 4.0 * p * T * T, sketch = 6.0 * p * T * W;
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

static fv_status orthonormal(work *k, fv_tensor *y, float *spare) {
    return fv_orthonormal(k->be, k->room, y, spare, false);
}

/* Q = orthonormal(Omega M^T); b serves as Omega. */
static fv_status start(work *k, int32_t p) {
    int32_t T = k->m.rows, W = k->m.cols;
    FV_TRY(matrix(k->room, p, T, &k->q));
    FV_TRY(matrix(k->room, p, W, &k->b));
    FV_TRY(FV_ARENA_NEW(k->room, (size_t)p * (size_t)T, k->q_spare));
    FV_TRY(FV_ARENA_NEW(k->room, (size_t)p * (size_t)W, k->b_spare));
    randomise(&k->b, k->goal->seed);
    FV_TRY(times_rows(k, k->b, k->m, k->q));
    FV_TRY(orthonormal(k, &k->q, k->q_spare));
    return k->way == FV_FACTOR_GRAM ? make_gram(k) : FV_OK;
}

/* ---- the iteration ------------------------------------------------------------------------- */

/* ||Q M||^2, which grows towards that of the best subspace of p dimensions; `next` holds Q G or
 * Q M, of which the next Q is made. */
static fv_status measure(work *k, fv_tensor *next, double *energy) {
    k->b.rows = k->q.rows;
    if (k->way == FV_FACTOR_GRAM) {
        *next = fv_tensor_of(k->q_spare, FV_F32, k->q.rows, k->q.cols);
        FV_TRY(times_rows(k, k->q, k->gram, *next));
        *energy = inner(&k->q, next);
    } else {
        *next = k->b;
        FV_TRY(times(k, k->q, k->m, *next));
        *energy = inner(next, next);
    }
    return FV_OK;
}

static fv_status advance(work *k, fv_tensor *next) {
    if (k->way == FV_FACTOR_SKETCH) {
        FV_TRY(orthonormal(k, next, k->b_spare));
        k->q.rows = next->rows;
        FV_TRY(times_rows(k, *next, k->m, k->q));
        return orthonormal(k, &k->q, k->q_spare);
    }
    float *spare = k->q.data;
    k->q = *next;
    k->q_spare = spare;
    return orthonormal(k, &k->q, k->q_spare);
}

/* Gains shrink by a factor each step; what is still to come is the rest of that series. */
static bool converged(const work *k, double energy, double gain, double gain_before) {
    double left = k->norm2 - energy;
    if (left <= LEFT_NOISE * k->norm2) return true;
    if (k->steps < 2) return false;
    double rate = gain_before > 0 ? gain / gain_before : 0;
    rate = rate > 0.95 ? 0.95 : rate < 0.1 ? 0.1 : rate;
    return gain * rate / (1 - rate) <= GAIN_SHARE * left || gain <= GAIN_NOISE * k->norm2;
}

static fv_status iterate(work *k) {
    double before = 0, gain_before = 0;
    for (k->steps = 0; k->steps < MAX_STEPS; k->steps++) {
        fv_tensor next;
        double energy;
        FV_TRY(measure(k, &next, &energy));
        double gain = energy - before;
        if (converged(k, energy, gain, gain_before)) break;
        FV_TRY(advance(k, &next));
        before = energy;
        gain_before = gain;
    }
    k->b.rows = k->q.rows;
    return times(k, k->q, k->m, k->b);
}

/* ---- after it ------------------------------------------------------------------------------ */

/* The fewest directions that keep the share of energy that is asked for. */
static int32_t rank_for(const work *k, const double *energy, int32_t n) {
    int32_t most = n < k->goal->rank ? n : k->goal->rank, r = 0;
    double sum = 0, enough = k->goal->energy > 0 ? k->goal->energy * k->norm2 : INFINITY;
    while (r < most && sum < enough && energy[r] > 0) sum += energy[r++];
    return r > 0 ? r : 1;
}

/* Rayleigh-Ritz: b b^T = Z^T diag(w) Z; the basis is Z b, made orthonormal. */
static fv_status make_basis(work *k, fv_tensor *basis) {
    int32_t p = k->b.rows;
    size_t n = (size_t)p * (size_t)p;
    fv_tensor h, z;
    double *a, *w, *room;
    FV_TRY(matrix(k->room, p, p, &h));
    FV_TRY(FV_ARENA_NEW(k->room, n, a));
    FV_TRY(FV_ARENA_NEW(k->room, p, w));
    FV_TRY(FV_ARENA_NEW(k->room, p, room));
    FV_TRY(times_rows(k, k->b, k->b, h));
    for (size_t i = 0; i < n; i++) a[i] = (double)((float *)h.data)[i];
    FV_TRY(fv_eigen_symmetric(a, p, w, room));
    for (size_t i = 0; i < n; i++) ((float *)h.data)[i] = (float)a[i];
    z = fv_tensor_rows(h, 0, rank_for(k, w, p));
    FV_TRY(matrix(k->room, z.rows, k->m.cols, basis));
    FV_TRY(times(k, z, k->b, *basis));
    return fv_orthonormal(k->be, k->room, basis, k->b_spare, true);
}

/* U = M B^T, and the error that is left. */
static fv_status finish(work *k, fv_factor *out) {
    fv_tensor basis, u;
    FV_TRY(make_basis(k, &basis));
    FV_TRY(matrix(k->room, k->m.rows, basis.rows, &u));
    FV_TRY(times_rows(k, k->m, basis, u));
    double left = k->norm2 - inner(&u, &u);
    size_t n = (size_t)u.rows * (size_t)u.cols;
    if (k->unit != 1)
        for (size_t i = 0; i < n; i++) ((float *)u.data)[i] *= k->unit;
    *out = (fv_factor){.rank = basis.rows,
                       .u = u.data,
                       .basis = basis.data,
                       .error = left > 0 ? sqrt(left / k->norm2) : 0,
                       .way = k->way,
                       .steps = k->steps};
    return FV_OK;
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
    int32_t T = m->rows, W = m->cols, p = goal->rank + OVERSAMPLE;
    p = p < T ? p : T;
    p = p < W ? p : W;
    k.way = goal->way == FV_FACTOR_AUTO ? choose(T, W, p) : goal->way;
    float top;
    FV_TRY(largest(m, &top));
    if (top == 0) return nothing(&k, m, out);
    FV_TRY(scaled(&k, m, top));
    k.norm2 = inner(&k.m, &k.m);
    FV_TRY(start(&k, p));
    FV_TRY(iterate(&k));
    return finish(&k, out);
}
