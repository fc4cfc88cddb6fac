/* factor/factor.c: errors against the singular value decomposition, over spectra of all kinds;
 * orthonormal bases; rank-deficient matrices; the same bits on every path. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "factor/eigen.h"
#include "factor/factor.h"
#include "kernels/backends/open.h"
#include "tests/support/rendered.h"

static uint64_t state = 1;

static double uniform(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static double normal(void) {
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += uniform();
    return (sum - 3) * sqrt(2);
}

static void *numbers(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    cr_assert(p);
    return p;
}

/* n random orthonormal rows of length N: Gram and Schmidt, twice. */
static double *random_rows(size_t n, size_t N) {
    double *q = numbers(n * N, sizeof *q);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < N; k++) q[i * N + k] = normal();
        for (int again = 0; again < 2; again++) {
            double size = 0;
            for (size_t j = 0; j < i; j++) {
                double dot = 0;
                for (size_t k = 0; k < N; k++) dot += q[i * N + k] * q[j * N + k];
                for (size_t k = 0; k < N; k++) q[i * N + k] -= dot * q[j * N + k];
            }
            for (size_t k = 0; k < N; k++) size += q[i * N + k] * q[i * N + k];
            for (size_t k = 0; k < N; k++) q[i * N + k] /= sqrt(size);
        }
    }
    return q;
}

/* A matrix [T, W] with given singular values. */
static fv_tensor with_spectrum(int32_t T, int32_t W, double (*sigma)(int)) {
    size_t t = (size_t)T, w = (size_t)W, n = t < w ? t : w;
    double *a = random_rows(n, t), *b = random_rows(n, w);
    float *m = numbers(t * w, sizeof *m);
    for (size_t j = 0; j < t; j++)
        for (size_t k = 0; k < w; k++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++) sum += a[i * t + j] * sigma((int)i) * b[i * w + k];
            m[j * w + k] = (float)sum;
        }
    free(a);
    free(b);
    return fv_tensor_of(m, FV_F32, T, W);
}

/* The least error of any matrix of rank R: from the Gram matrix's eigenvalues, in double. */
static double best_error(const fv_tensor *m, int32_t R) {
    size_t T = (size_t)m->rows, W = (size_t)m->cols;
    const float *x = m->data;
    double *g = numbers(T * T, sizeof *g), *w = numbers((1 + FV_EIGEN_SCRATCH) * T, sizeof *w),
           tail = 0, all = 0;
    for (size_t i = 0; i < T; i++)
        for (size_t j = 0; j <= i; j++)
            for (size_t k = 0; k < W; k++)
                g[i * T + j] += (double)x[i * W + k] * (double)x[j * W + k];
    cr_assert_eq(fv_eigen_symmetric(g, m->rows, w, w + T), FV_OK);
    for (size_t i = 0; i < T; i++) {
        double s = w[i] > 0 ? w[i] : 0;
        all += s;
        if (i >= (size_t)R) tail += s;
    }
    free(g);
    free(w);
    return sqrt(tail / all);
}

/* ||M - U[:, :r] B[:r]|| / ||M||, by definition. */
static double true_error(const fv_tensor *m, const fv_factor *f, int32_t r) {
    size_t W = (size_t)m->cols;
    double d = 0, all = 0;
    for (size_t j = 0; j < (size_t)m->rows; j++)
        for (size_t k = 0; k < W; k++) {
            double x = (double)((float *)m->data)[j * W + k], y = 0;
            for (size_t i = 0; i < (size_t)r; i++)
                y += (double)f->u[j * (size_t)f->rank + i] * (double)f->basis[i * W + k];
            d += (x - y) * (x - y);
            all += x * x;
        }
    return all > 0 ? sqrt(d / all) : sqrt(d);
}

/* The largest element of B B^T - I. */
static double skew(const fv_factor *f, int32_t W) {
    double worst = 0;
    for (int32_t i = 0; i < f->rank; i++)
        for (int32_t j = 0; j <= i; j++) {
            double dot = 0;
            for (int32_t k = 0; k < W; k++)
                dot += (double)f->basis[i * W + k] * (double)f->basis[j * W + k];
            worst = fmax(worst, fabs(dot - (i == j)));
        }
    return worst;
}

typedef struct rig {
    fv_backend be;
    fv_arena scratch;
} rig;

static rig open_rig(int threads, const char *isa) {
    rig r = {0};
    fv_backend_options opt = {.n_threads = threads, .isa = isa};
    cr_assert_eq(fv_backend_open(&r.be, "cpu", &opt), FV_OK);
    return r;
}

static void close_rig(rig *r) {
    fv_arena_fini(&r->scratch);
    fv_backend_close(&r->be);
}

static fv_factor factorise(rig *r, const fv_tensor *m, int32_t rank, fv_factor_way way) {
    fv_factor f;
    fv_factor_goal goal = {.rank = rank, .seed = 42, .way = way};
    cr_assert_eq(fv_factorise(&r->be, &r->scratch, m, &goal, &f), FV_OK, "%s", fv_last_error());
    return f;
}

static double flat(int i) { return i >= 0 ? 1 : 0; }
static double step(int i) { return i < 20 ? 1 : 0.05; }
static double step_at_rank(int i) { return i < 32 ? 1 : 0.9; }
static double power_half(int i) { return pow(i + 1, -0.5); }
static double power_one(int i) { return 1.0 / (i + 1); }
static double exponential(int i) { return exp(-0.1 * i); }
static double large_mean(int i) { return i == 0 ? 100 : pow(i, -0.7); }

Test(factor, error_is_within_half_a_percent_of_the_best, .timeout = 300) {
    static const struct {
        const char *name;
        double (*sigma)(int);
    } spectra[] = {{"flat", flat},
                   {"step", step},
                   {"step at R", step_at_rank},
                   {"power 0.5", power_half},
                   {"power 1", power_one},
                   {"exponential", exponential},
                   {"large mean", large_mean}};
    static const int32_t shapes[][2] = {{180, 260}, {260, 90}};
    rig r = open_rig(2, NULL);
    for (size_t i = 0; i < sizeof spectra / sizeof *spectra; i++)
        for (int shape = 0; shape < 2; shape++) {
            fv_tensor m = with_spectrum(shapes[shape][0], shapes[shape][1], spectra[i].sigma);
            double best = best_error(&m, 32);
            for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
                fv_factor f = factorise(&r, &m, 32, way);
                double error = true_error(&m, &f, f.rank);
                cr_expect(error <= 1.005 * best + 1e-5, "%s, way %d: %g, best %g, %d steps",
                          spectra[i].name, way, error, best, f.steps);
                cr_expect(fabs(f.error - error) < 2e-3 * error + 1e-3 * (error < 1e-2),
                          "%s, way %d: says %g, is %g", spectra[i].name, way, f.error, error);
                cr_expect(skew(&f, m.cols) < 1e-5, "%s, way %d: B B^T - I: %g", spectra[i].name,
                          way, skew(&f, m.cols));
                fv_arena_reset(&r.scratch);
            }
            free(m.data);
        }
    close_rig(&r);
}

/* A diag(decay^i) C of golden/methods/svd.json; tests/parity/methods/svd.py drew the same. */
static fv_tensor drawn(const json_t *c) {
    size_t T = (size_t)rendered_int(c, "rows"), W = (size_t)rendered_int(c, "width");
    size_t n = (size_t)rendered_int(c, "directions");
    double decay = json_number_value(rendered_at(c, "decay"));
    float *a = numbers(T * n, sizeof *a), *b = numbers(n * W, sizeof *b);
    float *m = numbers(T * W, sizeof *m);
    uint64_t seed = (uint64_t)rendered_int(c, "seed");
    rendered_uniform(&seed, a, T * n);
    rendered_uniform(&seed, b, n * W);
    for (size_t j = 0; j < T; j++)
        for (size_t k = 0; k < W; k++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += (double)a[j * n + i] * pow(decay, (double)i) * (double)b[i * W + k];
            m[j * W + k] = (float)sum;
        }
    free(a);
    free(b);
    return fv_tensor_of(m, FV_F32, (int32_t)T, (int32_t)W);
}

static double column_size(const fv_factor *f, int32_t T, int32_t r) {
    double sum = 0;
    for (int32_t j = 0; j < T; j++) sum += pow((double)f->u[j * f->rank + r], 2);
    return sqrt(sum);
}

Test(factor, errors_and_sizes_are_those_of_numpy) {
    json_t *root = rendered_read("svd");
    const json_t *cases = rendered_at(root, "factors");
    rig r = open_rig(1, NULL);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *size = rendered_at(c, "sizes");
        fv_tensor m = drawn(c);
        int32_t rank = rendered_int(c, "rank");
        double best = json_number_value(rendered_at(c, "error"));
        for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
            fv_factor f = factorise(&r, &m, rank, way);
            double error = true_error(&m, &f, rank);
            cr_expect(error > best * (1 - 1e-5) && error < best * 1.005,
                      "case %zu, way %d: error %g, best %g", i, way, error, best);
            for (int32_t k = 0; k < rank; k++) {
                double got = column_size(&f, m.rows, k);
                double want = json_number_value(json_array_get(size, (size_t)k));
                cr_expect(fabs(got - want) < (k < rank / 2 ? 1e-3 : 0.05) * want,
                          "case %zu, way %d, column %d: %g, not %g", i, way, k, got, want);
            }
            fv_arena_reset(&r.scratch);
        }
        free(m.data);
    }
    close_rig(&r);
    json_decref(root);
}

Test(factor, first_columns_are_the_best_of_their_number) {
    rig r = open_rig(1, NULL);
    fv_tensor m = with_spectrum(120, 150, power_half);
    fv_factor f = factorise(&r, &m, 40, FV_FACTOR_AUTO);
    double before = 1;
    for (int32_t n = 1; n <= 40; n += n < 8 ? 1 : 8) {
        double error = true_error(&m, &f, n), best = best_error(&m, n);
        cr_expect(error <= 1.005 * best, "first %d: %g, best %g", n, error, best);
        cr_expect(error < before);
        before = error;
    }
    free(m.data);
    close_rig(&r);
}

/* Rows in another order are the same rows: the same sizes, and each is approximated as before. */
Test(factor, the_order_of_rows_does_not_matter) {
    enum { T = 90, W = 40, R = 12 };
    rig r = open_rig(1, NULL);
    fv_tensor m = with_spectrum(T, W, exponential), turned = m;
    float *x = numbers(T * W, sizeof *x);
    turned.data = x;
    for (size_t j = 0; j < T; j++)
        memcpy(x + j * W, (float *)m.data + j * 37 % T * W, W * sizeof *x);
    for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
        fv_factor a = factorise(&r, &m, R, way), b = factorise(&r, &turned, R, way);
        cr_expect(fabs(a.error - b.error) < 5e-3 * a.error);
        double off = 0;
        for (size_t j = 0; j < T; j++)
            for (size_t k = 0; k < W; k++) {
                double was = 0, is = 0;
                for (size_t i = 0; i < R; i++) {
                    was += (double)a.u[j * 37 % T * R + i] * (double)a.basis[i * W + k];
                    is += (double)b.u[j * R + i] * (double)b.basis[i * W + k];
                }
                off += (was - is) * (was - is);
            }
        cr_expect(sqrt(off) < 0.2 * a.error * column_size(&a, T, 0), "way %d: %g", way, sqrt(off));
    }
    free(x);
    free(m.data);
    close_rig(&r);
}

Test(factor, all_directions_give_the_matrix) {
    rig r = open_rig(2, NULL);
    static const int32_t shapes[][2] = {{1, 40}, {5, 64}, {64, 7}, {50, 50}};
    for (int i = 0; i < 4; i++)
        for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
            int32_t T = shapes[i][0], W = shapes[i][1];
            fv_tensor m = with_spectrum(T, W, power_half);
            fv_factor f = factorise(&r, &m, 64, way);
            cr_expect_eq(f.rank, T < W ? T : W);
            cr_expect(true_error(&m, &f, f.rank) < 2e-6, "%d x %d: %g", T, W,
                      true_error(&m, &f, f.rank));
            cr_expect(f.error < 1e-3);
            free(m.data);
        }
    close_rig(&r);
}

Test(factor, matrices_with_few_directions_get_few) {
    rig r = open_rig(1, NULL);
    enum { T = 70, W = 96 };
    fv_tensor m = with_spectrum(T, W, flat);
    float *x = m.data;
    for (int j = 5; j < T; j++) /* five different rows, some of them zero */
        for (int k = 0; k < W; k++) x[j * W + k] = j % 7 ? x[j % 5 * W + k] : 0;
    for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
        fv_factor f = factorise(&r, &m, 32, way);
        cr_expect_eq(f.rank, 5, "rank %d", f.rank);
        cr_expect(true_error(&m, &f, f.rank) < 1e-5);
        cr_expect(skew(&f, W) < 1e-5);
    }
    memset(x, 0, sizeof(float) * T * W);
    fv_factor f = factorise(&r, &m, 32, FV_FACTOR_AUTO);
    cr_expect(f.rank == 1 && f.error == 0 && true_error(&m, &f, 1) == 0 && skew(&f, W) == 0);
    x[3 * W + 9] = 1000; /* one number among zeros */
    f = factorise(&r, &m, 32, FV_FACTOR_AUTO);
    cr_expect(f.rank == 1 && true_error(&m, &f, 1) < 1e-6);
    free(m.data);
    close_rig(&r);
}

Test(factor, an_outlier_costs_one_direction_and_no_more) {
    rig r = open_rig(1, NULL);
    fv_tensor m = with_spectrum(100, 120, power_half);
    for (int j = 0; j < 100; j++) ((float *)m.data)[j * 120 + 17] += 5;
    double best = best_error(&m, 16);
    for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
        fv_factor f = factorise(&r, &m, 16, way);
        cr_expect(true_error(&m, &f, 16) <= 1.005 * best, "%g, best %g", true_error(&m, &f, 16),
                  best);
    }
    free(m.data);
    close_rig(&r);
}

/* In bf16 the rounding of products would be more than what steps gain. */
Test(factor, a_backend_that_computes_in_bf16_gives_the_same_factors) {
    rig r = open_rig(2, NULL);
    fv_tensor m = with_spectrum(150, 200, power_half);
    for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
        r.be.compute = FV_COMPUTE_F32;
        fv_factor a = factorise(&r, &m, 32, way);
        r.be.compute = FV_COMPUTE_BF16;
        fv_factor b = factorise(&r, &m, 32, way);
        cr_expect(a.steps == b.steps && a.rank == b.rank && a.error == b.error);
        cr_expect_arr_eq(a.u, b.u, 150 * 32 * sizeof(float));
        cr_expect_arr_eq(a.basis, b.basis, 32 * 200 * sizeof(float));
    }
    free(m.data);
    close_rig(&r);
}

Test(factor, energy_stops_at_the_smallest_rank_that_has_it) {
    rig r = open_rig(1, NULL);
    fv_tensor m = with_spectrum(80, 100, exponential);
    fv_factor_goal goal = {.rank = 60, .energy = 0.9, .seed = 3};
    fv_factor f;
    cr_assert_eq(fv_factorise(&r.be, &r.scratch, &m, &goal, &f), FV_OK);
    cr_expect_leq(pow(f.error, 2), 0.1 + 1e-6);
    cr_expect_gt(pow(best_error(&m, f.rank - 1), 2), 0.1);
    goal.rank = 4; /* not enough: the maximum allowed */
    cr_assert_eq(fv_factorise(&r.be, &r.scratch, &m, &goal, &f), FV_OK);
    cr_expect_eq(f.rank, 4);
    free(m.data);
    close_rig(&r);
}

Test(factor, the_scale_of_numbers_does_not_matter) {
    rig r = open_rig(1, NULL);
    fv_tensor m = with_spectrum(40, 50, power_half);
    double error = factorise(&r, &m, 8, FV_FACTOR_GRAM).error;
    static const int exponents[] = {-120, -60, 60, 90};
    for (int i = 0; i < 4; i++) {
        fv_tensor scaled = with_spectrum(40, 50, flat);
        for (int k = 0; k < 2000; k++)
            ((float *)scaled.data)[k] = ldexpf(((float *)m.data)[k], exponents[i]);
        fv_factor f = factorise(&r, &scaled, 8, FV_FACTOR_GRAM);
        cr_expect(fabs(f.error - error) < 1e-4 * error && true_error(&scaled, &f, 8) < 1.01 * error,
                  "2^%d: %g, %g", exponents[i], f.error, error);
        free(scaled.data);
    }
    free(m.data);
    close_rig(&r);
}

Test(factor, what_is_not_finite_is_refused_by_its_row) {
    rig r = open_rig(1, NULL);
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int i = 0; i < 4; i++) {
        fv_tensor m = with_spectrum(10, 12, flat);
        ((float *)m.data)[7 * 12 + 2] = bad[i];
        fv_factor_goal goal = {.rank = 4};
        fv_factor f = {.rank = -1};
        cr_expect_eq(fv_factorise(&r.be, &r.scratch, &m, &goal, &f), FV_EINVAL);
        cr_expect(strstr(fv_last_error(), i < 3 ? "row 7" : "too large"), "%s", fv_last_error());
        cr_expect_eq(f.rank, -1);
        free(m.data);
    }
    close_rig(&r);
}

Test(factor, the_same_bits_with_any_number_of_threads_on_any_path) {
    static const char *const isa[] = {"plain", "avx2", "avx512", "auto"};
    fv_tensor m = with_spectrum(90, 110, power_half);
    for (fv_factor_way way = FV_FACTOR_GRAM; way <= FV_FACTOR_SKETCH; way++) {
        rig first = open_rig(1, "plain");
        fv_factor a = factorise(&first, &m, 12, way);
        for (int i = 0; i < 4; i++)
            for (int threads = 1; threads <= 3; threads++) {
                fv_backend_options opt = {.n_threads = threads, .isa = isa[i]};
                rig r = {0};
                if (fv_backend_open(&r.be, "cpu", &opt) != FV_OK) continue; /* not on this CPU */
                fv_factor b = factorise(&r, &m, 12, way);
                cr_expect_eq(b.rank, a.rank);
                cr_expect_arr_eq(a.u, b.u, sizeof(float) * 90 * (size_t)a.rank);
                cr_expect_arr_eq(a.basis, b.basis, sizeof(float) * 110 * (size_t)a.rank);
                close_rig(&r);
            }
        close_rig(&first);
    }
    free(m.data);
}

Test(factor, few_rows_use_their_gram_matrix_and_many_a_sketch) {
    rig r = open_rig(1, NULL);
    fv_tensor few = with_spectrum(40, 400, flat), many = with_spectrum(400, 40, flat);
    cr_expect_eq(factorise(&r, &few, 8, FV_FACTOR_AUTO).way, FV_FACTOR_GRAM);
    cr_expect_eq(factorise(&r, &many, 8, FV_FACTOR_AUTO).way, FV_FACTOR_SKETCH);
    free(few.data);
    free(many.data);
    close_rig(&r);
}

Test(factor, eigenvectors_of_small_matrices) {
    for (int n = 0; n <= 40; n += n < 4 ? 1 : 9)
        for (int kind = 0; kind < 3; kind++) {
            size_t N = (size_t)n;
            double *a = numbers(N * N, 8), *b = numbers(N * N, 8), w[41],
                   scratch[FV_EIGEN_SCRATCH * 41], worst = 0;
            for (size_t i = 0; i < N; i++)
                for (size_t j = 0; j <= i; j++)
                    a[i * N + j] = a[j * N + i] = kind == 0   ? normal()
                                                  : kind == 1 ? (double)(i == j && i % 2)
                                                              : 1.0;
            memcpy(b, a, N * N * 8);
            cr_assert_eq(fv_eigen_symmetric(a, n, w, scratch), FV_OK);
            for (size_t i = 0; i < N; i++)
                for (size_t j = 0; j < N; j++) {
                    double sum = 0, one = 0;
                    for (size_t k = 0; k < N; k++) {
                        sum += a[k * N + i] * w[k] * a[k * N + j];
                        one += a[i * N + k] * a[j * N + k];
                    }
                    worst = fmax(worst, fmax(fabs(sum - b[i * N + j]), fabs(one - (i == j))));
                }
            cr_expect(worst < 1e-12, "n = %d, kind %d: %g", n, kind, worst);
            for (int i = 1; i < n; i++) cr_expect_geq(w[i - 1], w[i]);
            free(a);
            free(b);
        }
}
