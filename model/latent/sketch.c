/* Accumulates rows into a sketch, and computes directions from it (sketch.h). */
#include "model/latent/sketch.h"

#include <math.h>
#include <string.h>

#include "factor/eigen.h"
#include "kernels/factor_rule.h"

enum { SEED = 20, SPARE = 64, GRAIN = 8 };
/* Shares of B's first eigenvalue, and of a row's norm, below which values are rounding errors. */
static const double LEAST = 1e-12, NEW = 1e-10;

size_t fv_latent_sketch_size(size_t W, size_t own) { return own + SPARE < W ? own + SPARE : W; }

fv_status fv_latent_sketch_omega(fv_arena *arena, size_t W, size_t s, const double **omega) {
    double *to;
    FV_TRY(FV_ARENA_NEW(arena, W * s, to));
    for (size_t i = 0; i < W * s; i++) to[i] = (double)fv_factor_random(SEED, i);
    *omega = to;
    return FV_OK;
}

fv_status fv_latent_sketch_init(fv_arena *arena, size_t W, size_t D, size_t s, const double *omega,
                                fv_latent_sketch *out) {
    fv_latent_sketch k = {.W = W, .D = D, .s = s, .omega = omega};
    FV_TRY(FV_ARENA_NEW(arena, s * W, k.y));
    FV_TRY(FV_ARENA_NEW(arena, W * D, k.block));
    *out = k;
    return FV_OK;
}

/* ---- rows ------------------------------------------------------------------------------- */

typedef struct addition {
    const fv_latent_sketch *k;
    const double *x; /* [n, W] */
    double *t;       /* [n, s] X Omega */
    size_t n;
} addition;

static void project(void *arg, int thread, int64_t begin, int64_t end) {
    const addition *a = arg;
    size_t W = a->k->W, s = a->k->s;
    (void)thread;
    memset(a->t + (size_t)begin * s, 0, (size_t)(end - begin) * s * sizeof *a->t);
    for (size_t c = 0; c < W; c++)
        for (size_t j = (size_t)begin; j < (size_t)end; j++) {
            const double *line = a->k->omega + c * s;
            double *t = a->t + j * s, x = a->x[j * W + c];
            for (size_t i = 0; i < s; i++) t[i] += x * line[i];
        }
}

static void add_lines(void *arg, int thread, int64_t begin, int64_t end) {
    const addition *a = arg;
    size_t W = a->k->W, s = a->k->s;
    (void)thread;
    for (size_t i = (size_t)begin; i < (size_t)end; i++)
        for (size_t j = 0; j < a->n; j++) {
            const double *x = a->x + j * W;
            double *y = a->k->y + i * W, t = a->t[j * s + i];
            for (size_t c = 0; c < W; c++) y[c] += t * x[c];
        }
}

static void add_blocks(void *arg, int thread, int64_t begin, int64_t end) {
    const addition *a = arg;
    size_t W = a->k->W, D = a->k->D;
    (void)thread;
    for (size_t c = (size_t)begin; c < (size_t)end; c++)
        for (size_t j = 0; j < a->n; j++) {
            const double *x = a->x + j * W, *head = x + c / D * D;
            double *line = a->k->block + c * D;
            for (size_t i = 0; i < D; i++) line[i] += x[c] * head[i];
        }
}

void fv_latent_sketch_add(fv_latent_sketch *k, fv_threads *threads, const double *x, size_t n,
                          double *scratch) {
    addition a = {.k = k, .x = x, .t = scratch, .n = n};
    fv_threads_for(threads, (int64_t)n, GRAIN, project, &a);
    fv_threads_for(threads, (int64_t)k->s, 1, add_lines, &a);
    fv_threads_for(threads, (int64_t)k->W, GRAIN, add_blocks, &a);
}

void fv_latent_sketch_center(fv_latent_sketch *k, const double *mean, double n) {
    size_t W = k->W, D = k->D;
    for (size_t i = 0; i < k->s; i++) {
        double t = 0;
        for (size_t c = 0; c < W; c++) t += mean[c] * k->omega[c * k->s + i];
        for (size_t c = 0; c < W; c++) k->y[i * W + c] = k->y[i * W + c] / n - t * mean[c];
    }
    for (size_t c = 0; c < W; c++)
        for (size_t i = 0; i < D; i++) {
            double *b = &k->block[c * D + i];
            *b = *b / n - mean[c] * mean[c / D * D + i];
        }
}

/* ---- directions ------------------------------------------------------------------------- */

double fv_latent_sketch_variance(const fv_latent_sketch *k, const double *root) {
    size_t D = k->D;
    double sum = 0;
    for (size_t c = 0; c < k->W; c++)
        for (size_t i = 0; i < D; i++) {
            const double *a = root + c * D, *b = root + (c / D * D + i) * D;
            double m = 0; /* M at c and its head's column i */
            for (size_t e = 0; e < D; e++) m += a[e] * b[e];
            sum += m * k->block[c * D + i];
        }
    return sum;
}

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Factors q [s, W] into L Q by Gram-Schmidt, each row twice; a row that adds no new direction
 * becomes zeros. */
static void orthonormal(double *q, size_t s, size_t W, double *lower) {
    for (size_t i = 0; i < s; i++) {
        double *x = q + i * W, before = sqrt(dot(x, x, W)), norm;
        for (int twice = 0; twice < 2; twice++)
            for (size_t j = 0; j < i; j++) {
                double along = dot(x, q + j * W, W);
                lower[i * s + j] += along;
                for (size_t c = 0; c < W; c++) x[c] -= along * q[j * W + c];
            }
        norm = sqrt(dot(x, x, W));
        bool own = norm > NEW * before;
        lower[i * s + i] = own ? norm : 0;
        for (size_t c = 0; c < W; c++) x[c] = own ? x[c] / norm : 0;
    }
}

/* Eigenvectors v of B = Y Omega as rows, divided by the roots of their eigenvalues; rows whose
 * eigenvalue is a rounding error become zeros. */
static fv_status half_inverse(const fv_latent_sketch *k, fv_arena *arena, double **v) {
    size_t s = k->s, W = k->W;
    double *w, *scratch;
    FV_TRY(FV_ARENA_NEW(arena, s * s, *v));
    FV_TRY(FV_ARENA_NEW(arena, s, w));
    FV_TRY(FV_ARENA_NEW(arena, FV_EIGEN_SCRATCH * s, scratch));
    for (size_t a = 0; a < s; a++)
        for (size_t c = 0; c < W; c++)
            for (size_t b = 0; b <= a; b++)
                (*v)[a * s + b] += k->y[a * W + c] * k->omega[c * s + b];
    FV_TRY(fv_eigen_symmetric(*v, (int32_t)s, w, scratch));
    for (size_t i = 0; i < s; i++) {
        double by = w[i] > LEAST * w[0] ? 1 / sqrt(w[i]) : 0;
        for (size_t a = 0; a < s; a++) (*v)[i * s + a] *= by;
    }
    return FV_OK;
}

/* Eigenvectors u of L^T B^+ L = g^T g, with g = v L; only its lower triangle is computed. */
static fv_status ritz(const double *v, const double *lower, size_t s, fv_arena *arena, double **u) {
    double *g, *w, *scratch;
    FV_TRY(FV_ARENA_NEW(arena, s * s, g));
    FV_TRY(FV_ARENA_NEW(arena, s * s, *u));
    FV_TRY(FV_ARENA_NEW(arena, s, w));
    FV_TRY(FV_ARENA_NEW(arena, FV_EIGEN_SCRATCH * s, scratch));
    for (size_t i = 0; i < s; i++)
        for (size_t a = 0; a < s; a++)
            for (size_t b = 0; b <= a; b++) g[i * s + b] += v[i * s + a] * lower[a * s + b];
    for (size_t i = 0; i < s; i++)
        for (size_t a = 0; a < s; a++)
            for (size_t b = 0; b <= a; b++) (*u)[a * s + b] += g[i * s + a] * g[i * s + b];
    return fv_eigen_symmetric(*u, (int32_t)s, w, scratch);
}

fv_status fv_latent_sketch_directions(const fv_latent_sketch *k, fv_arena *arena, double *weighted,
                                      size_t own, double *z) {
    size_t s = k->s, W = k->W;
    double *lower, *v, *u;
    FV_TRY(FV_ARENA_NEW(arena, s * s, lower));
    FV_TRY(half_inverse(k, arena, &v));
    orthonormal(weighted, s, W, lower);
    FV_TRY(ritz(v, lower, s, arena, &u));
    memset(z, 0, own * W * sizeof *z);
    for (size_t i = 0; i < own; i++)
        for (size_t a = 0; a < s; a++)
            for (size_t c = 0; c < W; c++) z[i * W + c] += u[i * s + a] * weighted[a * W + c];
    return FV_OK;
}
