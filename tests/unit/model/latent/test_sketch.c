/* Sketches of second moments: how much of the variance their directions hold, beside eigenvectors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "factor/eigen.h"
#include "model/latent/fit.h"
#include "model/latent/sketch.h"

enum { HEADS = 6, D = 32, W = HEADS * D, OWN = 24, ROWS = 600, HALF = ROWS / 2 };

static double noise(uint64_t *state) { /* near normal */
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) * 0x1p-53;
    }
    return sum;
}

/* [n, W] of deviation i^(-p / 2) along W random directions, around a mean. */
static double *make_rows(int n, double p, uint64_t seed) {
    static double mix[W][W];
    double *x = calloc((size_t)n * W, sizeof *x);
    uint64_t state = 5;
    for (int i = 0; i < W; i++)
        for (int c = 0; c < W; c++) mix[i][c] = noise(&state) / sqrt(W);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < W; i++) {
            double z = noise(&seed) * pow(i + 1, -p / 2);
            for (int c = 0; c < W; c++) x[j * W + c] += z * mix[i][c] + (i ? 0 : 0.5 * (c % 3));
        }
    return x;
}

/* C [W, W] and its mean. */
static double *covariance(const double *x, int n, double *mean) {
    double *m = calloc(W * W, sizeof *m);
    for (int c = 0; c < W; c++) mean[c] = 0;
    for (int j = 0; j < n; j++)
        for (int c = 0; c < W; c++) mean[c] += x[j * W + c] / n;
    for (int j = 0; j < n; j++)
        for (int a = 0; a < W; a++)
            for (int b = 0; b < W; b++)
                m[a * W + b] += (x[j * W + a] - mean[a]) * (x[j * W + b] - mean[b]) / n;
    return m;
}

/* A = R C R, R of blocks root [HEADS, D, D]. */
static void weigh(double *m, const double *root) {
    double *half = calloc(W * W, sizeof *half);
    for (int twice = 0; twice < 2; twice++) {
        for (int a = 0; a < W; a++)
            for (int b = 0; b < W; b++) {
                half[b * W + a] = 0;
                for (int i = 0; i < D; i++)
                    half[b * W + a] += m[a * W + b / D * D + i] * root[b * D + i];
            }
        memcpy(m, half, W * W * sizeof *m);
    }
    free(half);
}

/* Returns the part of tr A that OWN rows z hold; they must be orthonormal. */
static double held(const double *a, const double *z) {
    double sum = 0;
    for (int i = 0; i < OWN; i++) {
        for (int j = 0; j <= i; j++) {
            double dot = 0;
            for (int c = 0; c < W; c++) dot += z[i * W + c] * z[j * W + c];
            cr_assert_float_eq(dot, i == j, 1e-9, "%d, %d: %g", i, j, dot);
        }
        for (int b = 0; b < W; b++)
            for (int c = 0; c < W; c++) sum += z[i * W + b] * a[b * W + c] * z[i * W + c];
    }
    return sum;
}

static void set_roots(double *root, bool weighted) {
    for (int c = 0; c < W; c++)
        for (int i = 0; i < D; i++)
            root[c * D + i] = (c % D == i ? (weighted ? 1.0 + c % 5 : 1) : 0) +
                              (weighted ? 0.1 * cos(c % D * i) : 0);
    for (int c = 0; c < W; c++) /* symmetric */
        for (int i = 0; i < c % D; i++) root[c * D + i] = root[(c / D * D + i) * D + c % D];
}

/* z [OWN, W] of rows, shown in two calls, and the total variance. */
static double sketch(const double *x, int n, int threads, const double *root, double *z) {
    size_t s = fv_latent_sketch_size(W, OWN);
    double mean[W], *scratch = calloc((size_t)n * s, sizeof *scratch);
    const double *omega;
    double *weighted, *m = covariance(x, n, mean);
    fv_arena arena = {0};
    fv_threads *pool;
    fv_latent_sketch k;
    cr_assert_lt(s, W);
    cr_assert_eq(fv_threads_open(threads, &pool), FV_OK);
    cr_assert_eq(fv_latent_sketch_omega(&arena, W, s, &omega), FV_OK);
    cr_assert_eq(fv_latent_sketch_init(&arena, W, D, s, omega, &k), FV_OK);
    cr_assert_eq(FV_ARENA_NEW(&arena, s * W, weighted), FV_OK);
    fv_latent_sketch_add(&k, pool, x, (size_t)(n / threads), scratch);
    fv_latent_sketch_add(&k, pool, x + n / threads * W, (size_t)(n - n / threads), scratch);
    fv_latent_sketch_center(&k, mean, n);
    for (size_t i = 0; i < s; i++)
        for (int c = 0; c < W; c++)
            for (int e = 0; e < D; e++)
                weighted[i * W + (size_t)c] +=
                    k.y[i * W + (size_t)(c / D * D + e)] * root[c * D + e];
    double variance = fv_latent_sketch_variance(&k, root);
    cr_assert_eq(fv_latent_sketch_directions(&k, &arena, weighted, OWN, z), FV_OK, "%s",
                 fv_last_error());
    fv_threads_close(pool);
    fv_arena_fini(&arena);
    free(scratch);
    free(m);
    return variance;
}

Test(sketch, directions_hold_nearly_what_eigenvectors_hold) {
    static double root[W * D], z[OWN * W], w[W], spare[FV_EIGEN_SCRATCH * W], mean[W];
    static const double falls[] = {1, 1.4, 1.8};
    for (int i = 0; i < 6; i++) {
        double *x = make_rows(ROWS, falls[i / 2], 11), total = 0, most = 0;
        double *a = covariance(x, ROWS, mean);
        set_roots(root, i % 2);
        weigh(a, root);
        double variance = sketch(x, ROWS, 1, root, z), kept = held(a, z);
        cr_assert_eq(fv_eigen_symmetric(a, W, w, spare), FV_OK);
        for (int c = 0; c < W; c++) total += w[c];
        for (int c = 0; c < OWN; c++) most += w[c];
        cr_assert_float_eq(variance, total, 1e-9 * total, "%g, not %g", variance, total);
        cr_assert(kept <= most * (1 + 1e-9) && total - kept < 1.1 * (total - most),
                  "i^-%g: %g of %g, and at most %g", falls[i / 2], kept, total, most);
        free(x);
        free(a);
    }
}

Test(sketch, threads_and_calls_change_no_bit) {
    static double root[W * D], one[OWN * W], other[OWN * W];
    double *x = make_rows(HALF, 1.4, 12);
    set_roots(root, true);
    double variance = sketch(x, HALF, 1, root, one);
    for (int threads = 2; threads <= 5; threads += 3) {
        cr_assert_eq(sketch(x, HALF, threads, root, other), variance);
        cr_assert(memcmp(one, other, sizeof one) == 0, "%d threads", threads);
    }
    free(x);
}

/* Two rows around their mean are one direction, and there are no others. */
Test(sketch, rows_of_fewer_directions_leave_no_others) {
    static double root[W * D], z[OWN * W];
    double mean[W], *x = make_rows(2, 1, 13), *a = covariance(x, 2, mean), sum = 0, total = 0;
    set_roots(root, false);
    sketch(x, 2, 1, root, z);
    for (int c = 0; c < W; c++) total += a[c * W + c];
    for (int i = 0; i < OWN; i++) {
        double along = 0;
        for (int b = 0; b < W; b++)
            for (int c = 0; c < W; c++) along += z[i * W + b] * a[b * W + c] * z[i * W + c];
        cr_assert(isfinite(along) && (i == 0 || along < 1e-12 * total), "%d: %g", i, along);
        sum += along;
    }
    cr_assert_float_eq(sum, total, 1e-9 * total);
    memset(x, 0, 2 * W * sizeof *x);
    cr_assert_eq(sketch(x, 2, 1, root, z), 0);
    for (int i = 0; i < OWN * W; i++) cr_assert(isfinite(z[i]));
    free(x);
    free(a);
}

/* ---- a fit with sketches -------------------------------------------------------------------- */

enum { LAYERS = 2, DIRECTIONS = 40 };

/* Parts have 32 directions of 192: a group of 48 layers, of which there are two. weights [HEADS, D, D]
 * of each part, or NULL. Gives numbers. */
static float *fit(const double *x, const double *weights, size_t moment_bytes, int threads,
                  double *energy, size_t *n) {
    fv_latent_info info = {
        .n_layer = LAYERS, .n_kv = HEADS, .d_head = D, .n_group_layer = 48, .n_dir = DIRECTIONS};
    float *row = calloc(HALF * W, sizeof *row);
    fv_latent_fit *f;
    cr_assert_eq(fv_latent_fit_open(&info, threads, moment_bytes, &f), FV_OK);
    for (int pass = 0; pass < FV_LATENT_PASSES; pass++) {
        for (int half = 0; half < 2; half++) {
            for (int p = 0; p < 2 * LAYERS; p++) {
                for (int i = 0; i < HALF * W; i++)
                    row[i] = (float)((p + 1) * x[half * HALF * W + (i + 7 * p) % (HALF * W)]);
                cr_assert_eq(fv_latent_fit_rows(f, p / 2, p % 2, HALF, row), FV_OK);
            }
            fv_latent_fit_end_rows(f);
        }
        for (int p = 0; p < 2 * LAYERS && weights && pass == 0; p++)
            cr_assert_eq(fv_latent_fit_weigh(f, p / 2, p % 2, weights), FV_OK);
        cr_assert_eq(fv_latent_fit_end_pass(f), FV_OK, "%s", fv_last_error());
    }
    *energy = fv_latent_fit_energy(f, 0, DIRECTIONS);
    *n = fv_latent_numbers(&info) * sizeof(float);
    float *numbers = malloc(*n);
    memcpy(numbers, fv_latent_fit_numbers(f), *n);
    fv_latent_fit_close(f);
    free(row);
    return numbers;
}

Test(sketch, a_fit_without_room_for_second_moments_loses_little) {
    static double weights[W * D];
    size_t n, room = 2 * LAYERS * W * W * sizeof(double);
    double *x = make_rows(ROWS, 1.8, 14);
    for (int c = 0; c < W; c++) weights[c * D + c % D] = 1 + c % 5;
    for (int i = 0; i < 2; i++) {
        const double *m = i ? weights : NULL;
        double exact, small, same;
        float *moments = fit(x, m, room, 1, &exact, &n),
              *sketches = fit(x, m, room - 1, 1, &small, &n);
        float *threads = fit(x, m, 0, 3, &same, &n);
        cr_assert(memcmp(moments, sketches, n) != 0, "nothing was sketched");
        cr_assert(small < exact && 1 - small < 1.05 * (1 - exact), "%g, and %g", small, exact);
        cr_assert(memcmp(sketches, threads, n) == 0 && same == small);
        free(moments);
        free(sketches);
        free(threads);
    }
    free(x);
}
