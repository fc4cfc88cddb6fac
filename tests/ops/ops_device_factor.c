/* Low-rank factors on a device: the CPU's bits with exact products; otherwise, for many matrices
 * together, errors as small as the CPU's, the same ranks, and each as if computed alone. */
#include <float.h>

#include "factor/factor.h"
#include "tests/ops/device_mirror.h"

enum { MAX_N = 5 };

/* Spectra like those of keys and values: falling by a power, exponentially, in a step, constant; or
 * few. */
static double sigma(int kind, int i) {
    switch (kind) {
    case 0: return pow(i + 1, -1.0);
    case 1: return exp(-0.15 * i);
    case 2: return i < 6 ? 1 : 0.05;
    case 3: return 1;
    default: return i < 5 ? 1 : 0;
    }
}

/* Sum of sigma_i times an outer product of random vectors. */
static fv_tensor matrix(int T, int W, int kind) {
    fv_tensor m = tensor_new(FV_F32, T, W, 0);
    float *x = m.data, *a = room((size_t)T * 4), *b = room((size_t)W * 4);
    memset(x, 0, tensor_bytes(&m));
    for (int i = 0; i < (T < W ? T : W); i++) {
        for (int t = 0; t < T; t++) a[t] = random_normal();
        for (int w = 0; w < W; w++) b[w] = random_normal();
        for (int t = 0; t < T; t++)
            for (int w = 0; w < W; w++) x[t * W + w] += (float)sigma(kind, i) * a[t] * b[w];
    }
    free(a);
    free(b);
    return m;
}

/* ||M - U B|| / ||M||, by definition. */
static double true_error(const fv_tensor *m, const fv_factor *f) {
    double diff = 0, all = 0;
    for (int t = 0; t < m->rows; t++)
        for (int w = 0; w < m->cols; w++) {
            double x = get(m, t, w), y = 0;
            for (int r = 0; r < f->rank; r++)
                y += (double)f->u[t * f->rank + r] * (double)f->basis[r * m->cols + w];
            diff += (x - y) * (x - y);
            all += x * x;
        }
    return all > 0 ? sqrt(diff / all) : sqrt(diff);
}

/* The largest element of B B^T - I. */
static double skew(const fv_factor *f, int W) {
    double worst = 0;
    for (int i = 0; i < f->rank; i++)
        for (int j = 0; j <= i; j++) {
            double dot = 0;
            for (int w = 0; w < W; w++)
                dot += (double)f->basis[i * W + w] * (double)f->basis[j * W + w];
            worst = fmax(worst, fabs(dot - (i == j)));
        }
    return worst;
}

/* Factors of n host matrices, computed on the device. */
static fv_status factors(device_test *d, fv_arena *room, const fv_tensor *m,
                         const fv_factor_goal *goal, int n, fv_factor *f, int *bad) {
    mirror mir = {.be = &d->be};
    fv_tensor on[MAX_N];
    for (int i = 0; i < n; i++) {
        on[i] = m[i];
        on[i].data = there(&mir, m[i].data, tensor_bytes(&m[i]));
    }
    int32_t which = -1;
    fv_status st = fv_factorise_all(&d->be, room, on, goal, n, f, &which);
    *bad = which;
    mirror_free(&mir);
    return st;
}

static void same_factor(const fv_factor *a, const fv_factor *b, const fv_tensor *m,
                        const char *what) {
    check(a->rank == b->rank && a->steps == b->steps && a->error == b->error,
          "%s, %d x %d: rank %d, %d steps, error %g; the other %d, %d, %g", what, m->rows, m->cols,
          a->rank, a->steps, a->error, b->rank, b->steps, b->error);
    if (a->rank != b->rank) return;
    same(a->u, b->u, (size_t)m->rows * (size_t)a->rank, what);
    same(a->basis, b->basis, (size_t)a->rank * (size_t)m->cols, what);
}

/* ---- exact -------------------------------------------------------------------------------- */

static void test_exact(device_test *d) {
    static const int shapes[][3] = {{1, 20, 4}, {33, 48, 8}, {50, 20, 20}, {40, 37, 6}};
    group("factors, exact products: the bits of the CPU");
    for (int i = 0; i < 8; i++) {
        const int *s = shapes[i % 4];
        fv_arena room = {0};
        fv_tensor m = matrix(s[0], s[1], i % 5);
        fv_factor_goal goal = {.rank = s[2],
                               .energy = i % 3 ? 0 : 0.8,
                               .seed = (uint64_t)i,
                               .way = i < 4 ? FV_FACTOR_GRAM : FV_FACTOR_SKETCH};
        fv_factor here, got;
        int bad;
        if (i == 5) /* numbers that are scaled first */
            for (int k = 0; k < m.rows * m.cols; k++) ((float *)m.data)[k] *= 0x1p60f;
        must(fv_factorise(&d->plain, &room, &m, &goal, &here));
        must(factors(d, &room, &m, &goal, 1, &got, &bad));
        same_factor(&got, &here, &m, "factors");
        fv_arena_fini(&room);
        free(m.data);
    }
}

/* ---- many together ------------------------------------------------------------------- */

/* Sums are in another order, so bits differ, and a rank by energy may differ by one where the
 * energy share is just met. */
static void check_near(const fv_tensor *m, const fv_factor *got, const fv_factor *here, bool energy,
                       const char *what) {
    double error = true_error(m, got);
    check(abs(got->rank - here->rank) <= energy, "%s: rank %d, the CPU's %d", what, got->rank,
          here->rank);
    check(energy || error <= 1.005 * here->error + 2e-5, "%s: error %g, the CPU's %g", what, error,
          here->error);
    check(fabs(error - got->error) < 2e-3 * error + 1e-3 * (error < 1e-2), "%s: says %g, is %g",
          what, got->error, error);
    check(skew(got, m->cols) < 1e-5, "%s: B B^T - I: %g", what, skew(got, m->cols));
    check(got->way == here->way && abs(got->steps - here->steps) <= 2, "%s: %d steps, not %d", what,
          got->steps, here->steps);
}

static void test_together(device_test *d) {
    static const int shapes[][3] = {{40, 64, 8}, {60, 24, 10}, {33, 48, 33}, {1, 30, 3}};
    group("factors of many together: as near as the CPU's, each as alone");
    for (int round = 0; round < 3; round++) {
        fv_arena room = {0};
        fv_tensor m[MAX_N];
        fv_factor_goal goal[MAX_N];
        fv_factor got[MAX_N], alone, here;
        int bad;
        for (int i = 0; i < MAX_N; i++) {
            const int *s = shapes[(i + round) % 4];
            m[i] = matrix(s[0], s[1], i);
            goal[i] = (fv_factor_goal){.rank = s[2],
                                       .energy = (i + round) % 3 == 2 ? 0.9 : 0,
                                       .seed = (uint64_t)(i + 10 * round),
                                       .way = (fv_factor_way)((i + round) % 3)};
        }
        must(factors(d, &room, m, goal, MAX_N, got, &bad));
        for (int i = 0; i < MAX_N; i++) {
            char what[64];
            snprintf(what, sizeof what, "%d x %d, spectrum %d, way %d", m[i].rows, m[i].cols, i,
                     (int)goal[i].way);
            must(fv_factorise(&d->plain, &room, &m[i], &goal[i], &here));
            check_near(&m[i], &got[i], &here, goal[i].energy > 0, what);
            if (i < 2) {
                must(factors(d, &room, &m[i], &goal[i], 1, &alone, &bad));
                same_factor(&alone, &got[i], &m[i], "alone");
            }
        }
        for (int i = 0; i < MAX_N; i++) free(m[i].data);
        fv_arena_fini(&room);
    }
}

static void refused(device_test *d, fv_tensor *m, float with, const char *words) {
    fv_arena room = {0};
    fv_factor_goal goal[3] = {{.rank = 4}, {.rank = 4}, {.rank = 4}};
    fv_factor f[3];
    int bad;
    float was = ((float *)m[2].data)[3 * m[2].cols + 1];
    ((float *)m[2].data)[3 * m[2].cols + 1] = with;
    fv_status st = factors(d, &room, m, goal, 3, f, &bad);
    check(st == FV_EINVAL && bad == 2 && strstr(fv_last_error(), words), "status %d, matrix %d: %s",
          (int)st, bad, fv_last_error());
    ((float *)m[2].data)[3 * m[2].cols + 1] = was;
    fv_arena_fini(&room);
}

static void test_odd(device_test *d) {
    group("factors of many together: zeros, numbers of all sizes, few directions, bad numbers");
    fv_arena room = {0};
    fv_tensor m[3] = {matrix(20, 30, 0), matrix(20, 30, 4), matrix(20, 30, 1)};
    fv_factor_goal goal[3] = {{.rank = 6}, {.rank = 9}, {.rank = 6}};
    fv_factor f[3], here;
    int bad;
    refused(d, m, NAN, "row 3");
    refused(d, m, -INFINITY, "row 3");
    refused(d, m, FLT_MAX, "too large");
    memset(m[0].data, 0, tensor_bytes(&m[0]));
    for (int i = 0; i < 20 * 30; i++) ((float *)m[2].data)[i] *= 0x1p-70f;
    must(factors(d, &room, m, goal, 3, f, &bad));
    check(f[0].rank == 1 && f[0].error == 0 && true_error(&m[0], &f[0]) == 0, "zeros: rank %d",
          f[0].rank);
    check(f[1].rank == 5 && true_error(&m[1], &f[1]) < 1e-5, "five directions: rank %d, error %g",
          f[1].rank, true_error(&m[1], &f[1]));
    must(fv_factorise(&d->plain, &room, &m[2], &goal[2], &here));
    check_near(&m[2], &f[2], &here, false, "small numbers");
    must(fv_factorise_all(&d->be, &room, NULL, NULL, 0, NULL, &bad));
    for (int i = 0; i < 3; i++) free(m[i].data);
    fv_arena_fini(&room);
}

int main(void) {
    device_test exact = device_open("exact");
    test_exact(&exact);
    device_close(&exact);
    device_test fast = device_open("auto");
    test_together(&fast);
    test_odd(&fast);
    device_close(&fast);
    return summary();
}
