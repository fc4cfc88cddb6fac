/* Fits latent directions to rows (fit.h). */
#include "model/latent/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "factor/eigen.h"
#include "kernels/cpu/threads.h"
#include "model/latent/sketch.h"

enum { TOGETHER = 3072, OWN_LEAST = 32, BINS = 8192, LLOYD_STEPS = 300 };
/* Share of a part's mean eigenvalue that is added to each eigenvalue of its weights: bounds
 * M^(-1/2). */
static const double FLOOR = 1e-3;
static const double SPAN = 8; /* range of the histogram on each side of 0, in deviations */

struct fv_latent_fit {
    fv_latent_info info;
    fv_threads *threads;
    fv_arena arena;
    int32_t pass, n_row, n_part, own; /* own: r1, directions of a layer's keys or values */
    double n;                         /* rows of this pass */
    double **mean, **moment;          /* [n_part] of [W], [W, W] */
    fv_latent_sketch *sketch;         /* [n_part] instead of moments, or NULL */
    double **weights;                 /* [n_part] of M [Hkv, D, D], or NULL */
    double **ahead, **back;           /* [n_part] Z M^(1/2) and Z M^(-1/2), [own, W] */
    float *y;                         /* [cap, n_part * own] coefficients of these rows */
    int32_t cap;
    double **joint;    /* [n_group] [P, P] with P = parts * own: moments, in the end directions */
    double **spectrum; /* [n_group] of [P] */
    double *x;         /* [largest of rows * W or P] rows of this call */
    double *t;         /* [cap_t] coefficients of a sketch */
    size_t cap_x, cap_t;
    double *bin; /* [threads, BINS] counts */
    float *numbers;
};

static size_t width_of(const fv_latent_fit *f) {
    return (size_t)f->info.n_kv * (size_t)f->info.d_head;
}

static int32_t n_group(const fv_latent_fit *f) {
    return (f->info.n_layer + f->info.n_group_layer - 1) / f->info.n_group_layer;
}

/* Parts of group g: from *first to the returned index. */
static int32_t parts_of(const fv_latent_fit *f, int32_t g, int32_t *first) {
    int32_t end = 2 * (g + 1) * f->info.n_group_layer;
    *first = 2 * g * f->info.n_group_layer;
    return end < f->n_part ? end : f->n_part;
}

static size_t joint_of(const fv_latent_fit *f, int32_t g) {
    int32_t first, end = parts_of(f, g, &first);
    return (size_t)(end - first) * (size_t)f->own;
}

/* Allocates second moments, or sketches of them. */
static fv_status open_moments(fv_latent_fit *f, size_t moment_bytes) {
    size_t W = width_of(f), n = (size_t)f->n_part;
    size_t s = fv_latent_sketch_size(W, (size_t)f->own);
    const double *omega;
    if (s == W || n * W * W * sizeof **f->moment <= moment_bytes) {
        for (size_t p = 0; p < n; p++) FV_TRY(FV_ARENA_NEW(&f->arena, W * W, f->moment[p]));
        return FV_OK;
    }
    FV_TRY(FV_ARENA_NEW(&f->arena, n, f->sketch));
    FV_TRY(fv_latent_sketch_omega(&f->arena, W, s, &omega));
    for (size_t p = 0; p < n; p++)
        FV_TRY(
            fv_latent_sketch_init(&f->arena, W, (size_t)f->info.d_head, s, omega, &f->sketch[p]));
    return FV_OK;
}

static fv_status open_arrays(fv_latent_fit *f) {
    size_t W = width_of(f);
    FV_TRY(FV_ARENA_NEW(&f->arena, f->n_part, f->mean));
    FV_TRY(FV_ARENA_NEW(&f->arena, f->n_part, f->moment));
    FV_TRY(FV_ARENA_NEW(&f->arena, f->n_part, f->weights));
    FV_TRY(FV_ARENA_NEW(&f->arena, f->n_part, f->ahead));
    FV_TRY(FV_ARENA_NEW(&f->arena, f->n_part, f->back));
    for (int32_t p = 0; p < f->n_part; p++) {
        FV_TRY(FV_ARENA_NEW(&f->arena, W, f->mean[p]));
        FV_TRY(FV_ARENA_NEW(&f->arena, (size_t)f->own * W, f->ahead[p]));
        FV_TRY(FV_ARENA_NEW(&f->arena, (size_t)f->own * W, f->back[p]));
    }
    FV_TRY(FV_ARENA_NEW(&f->arena, n_group(f), f->joint));
    FV_TRY(FV_ARENA_NEW(&f->arena, n_group(f), f->spectrum));
    for (int32_t g = 0; g < n_group(f); g++) {
        FV_TRY(FV_ARENA_NEW(&f->arena, joint_of(f, g) * joint_of(f, g), f->joint[g]));
        FV_TRY(FV_ARENA_NEW(&f->arena, joint_of(f, g), f->spectrum[g]));
    }
    FV_TRY(FV_ARENA_NEW(&f->arena, (size_t)fv_threads_count(f->threads) * BINS, f->bin));
    return FV_ARENA_NEW(&f->arena, fv_latent_numbers(&f->info), f->numbers);
}

fv_status fv_latent_fit_open(const fv_latent_info *info, int threads, size_t moment_bytes,
                             fv_latent_fit **out) {
    fv_latent_fit *f = calloc(1, sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for latent directions");
    f->info = *info;
    f->n_part = 2 * info->n_layer;
    int32_t own = TOGETHER / (2 * info->n_group_layer), W = (int32_t)width_of(f);
    f->own = own < OWN_LEAST ? OWN_LEAST : own;
    if (f->own > W) f->own = W;
    fv_status st = FV_OK;
    for (int32_t g = 0; g < n_group(f); g++)
        if ((size_t)info->n_dir > joint_of(f, g) || info->n_dir > FV_LATENT_MOST)
            st = FV_FAIL(FV_EINVAL, "%d directions for layers that have %zu: ask for fewer",
                         info->n_dir, joint_of(f, g));
    if (st == FV_OK) st = fv_threads_open(threads, &f->threads);
    if (st == FV_OK) st = open_arrays(f);
    if (st == FV_OK) st = open_moments(f, moment_bytes);
    if (st == FV_OK)
        *out = f;
    else
        fv_latent_fit_close(f);
    return st;
}

void fv_latent_fit_close(fv_latent_fit *f) {
    if (!f) return;
    free(f->x);
    free(f->t);
    free(f->y);
    fv_threads_close(f->threads);
    fv_arena_fini(&f->arena);
    free(f);
}

fv_status fv_latent_fit_weigh(fv_latent_fit *f, int32_t layer, int kind, const double *m) {
    double **to = &f->weights[2 * layer + kind];
    size_t D = (size_t)f->info.d_head, n = (size_t)f->info.n_kv * D * D;
    FV_TRY(FV_ARENA_NEW(&f->arena, n, *to));
    memcpy(*to, m, n * sizeof *m);
    return FV_OK;
}

/* ---- rows ------------------------------------------------------------------------------- */

enum { GRAIN = 8 }; /* rows of a matrix that a thread takes at a time */

/* Adds x_j x_j^T over rows x [n_row, n] to the lower triangle of m [n, n], each number in row
 * order. */
typedef struct squares {
    double *m;
    const double *x;
    size_t n, n_row;
} squares;

static void add_lines(void *arg, int thread, int64_t begin, int64_t end) {
    const squares *s = arg;
    (void)thread;
    for (size_t a = (size_t)begin; a < (size_t)end; a++) {
        double *line = s->m + a * s->n;
        for (size_t j = 0; j < s->n_row; j++) {
            const double *x = s->x + j * s->n;
            for (size_t b = 0; b <= a; b++) line[b] += x[a] * x[b];
        }
    }
}

static void add_squares(fv_latent_fit *f, double *m, size_t n, size_t n_row) {
    squares s = {.m = m, .x = f->x, .n = n, .n_row = n_row};
    fv_threads_for(f->threads, (int64_t)n, GRAIN, add_lines, &s);
}

static fv_status room_for(size_t numbers, double **x, size_t *cap) {
    if (numbers <= *cap) return FV_OK;
    double *grown = realloc(*x, numbers * sizeof *grown);
    if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for %zu numbers of rows", numbers);
    *x = grown;
    *cap = numbers;
    return FV_OK;
}

static fv_status add_moments(fv_latent_fit *f, int32_t part, int32_t n, const float *m) {
    size_t W = width_of(f);
    for (size_t i = 0; i < (size_t)n * W; i++) {
        f->x[i] = (double)m[i];
        f->mean[part][i % W] += f->x[i];
    }
    if (!f->sketch) {
        add_squares(f, f->moment[part], W, (size_t)n);
        return FV_OK;
    }
    FV_TRY(room_for((size_t)n * f->sketch->s, &f->t, &f->cap_t));
    fv_latent_sketch_add(&f->sketch[part], f->threads, f->x, (size_t)n, f->t);
    return FV_OK;
}

/* y = (x - mean) M^(1/2) Z^T, row by row. */
typedef struct projection {
    fv_latent_fit *f;
    int32_t part;
    const float *m;
} projection;

static void project_rows(void *arg, int thread, int64_t begin, int64_t end) {
    const projection *p = arg;
    const fv_latent_fit *f = p->f;
    size_t W = width_of(f), own = (size_t)f->own, line = own * (size_t)f->n_part;
    (void)thread;
    for (size_t j = (size_t)begin; j < (size_t)end; j++) {
        const float *m = p->m + j * W;
        float *y = f->y + j * line + own * (size_t)p->part;
        double *x = f->x + j * W;
        for (size_t c = 0; c < W; c++) x[c] = (double)m[c] - f->mean[p->part][c];
        for (size_t r = 0; r < own; r++) {
            double sum = 0;
            for (size_t c = 0; c < W; c++) sum += x[c] * f->ahead[p->part][r * W + c];
            y[r] = (float)sum;
        }
    }
}

fv_status fv_latent_fit_rows(fv_latent_fit *f, int32_t layer, int kind, int32_t n, const float *m) {
    size_t line = (size_t)f->own * (size_t)f->n_part, joint = joint_of(f, 0), W = width_of(f);
    projection p = {.f = f, .part = 2 * layer + kind, .m = m};
    FV_TRY(room_for((size_t)n * (W > joint ? W : joint), &f->x, &f->cap_x));
    if (f->pass > 0 && n > f->cap) {
        float *grown = realloc(f->y, (size_t)n * line * sizeof *grown);
        if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for %d rows", n);
        f->cap = n;
        f->y = grown;
    }
    f->n_row = n;
    if (f->pass == 0) return add_moments(f, p.part, n, m);
    fv_threads_for(f->threads, n, GRAIN, project_rows, &p);
    return FV_OK;
}

/* Counts z / deviation for rows of group g in the thread's own histogram: sums of counts do not
 * depend on their order. */
typedef struct histogram {
    fv_latent_fit *f;
    int32_t g;
} histogram;

static void add_histogram(void *arg, int thread, int64_t begin, int64_t end) {
    const histogram *h = arg;
    const fv_latent_fit *f = h->f;
    size_t P = joint_of(f, h->g), R = (size_t)f->info.n_dir;
    double *bin = f->bin + (size_t)thread * BINS;
    for (size_t j = (size_t)begin; j < (size_t)end; j++)
        for (size_t r = 0; r < R; r++) {
            double z = 0, w = f->spectrum[h->g][r];
            if (w <= 0) continue;
            for (size_t i = 0; i < P; i++) z += f->x[j * P + i] * f->joint[h->g][r * P + i];
            double at = (z / sqrt(w) / SPAN + 1) * BINS / 2;
            bin[at < 0 ? 0 : at >= BINS ? BINS - 1 : (int32_t)at] += 1;
        }
}

static void sum_histograms(fv_latent_fit *f) {
    for (int t = 1; t < fv_threads_count(f->threads); t++)
        for (size_t i = 0; i < BINS; i++) f->bin[i] += f->bin[(size_t)t * BINS + i];
}

/* Copies the rows' coefficients on the directions of group g's parts, side by side, into x. */
static void gather(fv_latent_fit *f, int32_t g) {
    size_t line = (size_t)f->own * (size_t)f->n_part, P = joint_of(f, g);
    int32_t first;
    (void)parts_of(f, g, &first);
    for (size_t j = 0; j < (size_t)f->n_row; j++)
        for (size_t i = 0; i < P; i++)
            f->x[j * P + i] = (double)f->y[j * line + (size_t)first * (size_t)f->own + i];
}

void fv_latent_fit_end_rows(fv_latent_fit *f) {
    f->n += f->n_row;
    for (int32_t g = 0; f->pass > 0 && g < n_group(f); g++) {
        size_t P = joint_of(f, g);
        gather(f, g);
        if (f->pass == 1)
            add_squares(f, f->joint[g], P, (size_t)f->n_row);
        else
            fv_threads_for(f->threads, f->n_row, GRAIN, add_histogram, &(histogram){f, g});
    }
    f->n_row = 0;
}

/* ---- directions ------------------------------------------------------------------------- */

static fv_status eigen(double *a, size_t n, double *w) {
    double *scratch = malloc(FV_EIGEN_SCRATCH * n * sizeof *scratch);
    if (!scratch) return FV_FAIL(FV_ENOMEM, "out of memory for %zu directions", n);
    fv_status st = fv_eigen_symmetric(a, (int32_t)n, w, scratch);
    free(scratch);
    return st;
}

/* Computes M^(1/2) and M^(-1/2) of weights [Hkv, D, D], with FLOOR times the mean eigenvalue added
 * to every eigenvalue. */
static fv_status roots_of(const fv_latent_fit *f, double *m, double *root, double *inverse) {
    size_t D = (size_t)f->info.d_head, n = (size_t)f->info.n_kv;
    double *w, floor = 0;
    w = malloc(D * sizeof *w);
    if (!w) return FV_FAIL(FV_ENOMEM, "out of memory for %zu directions", D);
    fv_status st = FV_OK;
    for (size_t i = 0; i < n * D; i++) floor += m[i * D + i % D] * FLOOR / (double)(n * D);
    for (size_t g = 0; g < n && st == FV_OK; g++, m += D * D, root += D * D, inverse += D * D) {
        st = eigen(m, D, w);
        for (size_t i = 0; i < D && st == FV_OK; i++) {
            double by = sqrt((w[i] > 0 ? w[i] : 0) + floor), over = by > 0 ? 1 / by : 0;
            const double *z = m + i * D;
            for (size_t a = 0; a < D; a++)
                for (size_t b = 0; b < D; b++) {
                    root[a * D + b] += by * z[a] * z[b];
                    inverse[a * D + b] += over * z[a] * z[b];
                }
        }
    }
    free(w);
    return st;
}

/* y [n, W] = x [n, W] times blocks [Hkv, D, D], which are symmetric. */
static void times_blocks(const fv_latent_fit *f, const double *x, size_t n, const double *block,
                         double *y) {
    size_t D = (size_t)f->info.d_head, W = width_of(f);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < W; c++) {
            const double *line = block + c * D, *at = x + i * W + c / D * D;
            double sum = 0;
            for (size_t k = 0; k < D; k++) sum += at[k] * line[k];
            y[i * W + c] = sum;
        }
}

/* Turns the sums of part p into its mean and its whole covariance matrix C. */
static void covariance(fv_latent_fit *f, int32_t p) {
    size_t W = width_of(f);
    double *mean = f->mean[p], *moment = f->moment[p];
    for (size_t c = 0; c < W; c++) mean[c] /= f->n;
    for (size_t a = 0; a < W; a++)
        for (size_t b = 0; b <= a; b++)
            moment[a * W + b] = moment[b * W + a] = moment[a * W + b] / f->n - mean[a] * mean[b];
}

/* Roots of a part's weights; without weights M = I. */
static fv_status part_roots(fv_latent_fit *f, int32_t p, double *root, double *inverse) {
    size_t D = (size_t)f->info.d_head, W = width_of(f);
    if (f->weights[p]) return roots_of(f, f->weights[p], root, inverse);
    for (size_t c = 0; c < W; c++) root[c * D + c % D] = inverse[c * D + c % D] = 1;
    return FV_OK;
}

/* x [n] *= by */
static void scale(double *x, size_t n, double by) {
    for (size_t i = 0; i < n; i++) x[i] *= by;
}

/* Computes directions z [W, W] from second moments, the largest first, and the total variance. */
static fv_status eigenvectors(fv_latent_fit *f, int32_t p, const double *root, fv_arena *arena,
                              double **z, double *total) {
    size_t W = width_of(f);
    double *half, *w, *moment = f->moment[p];
    FV_TRY(FV_ARENA_NEW(arena, W * W, half));
    FV_TRY(FV_ARENA_NEW(arena, W, w));
    covariance(f, p);
    times_blocks(f, moment, W, root, half); /* C M^(1/2), transposed M^(1/2) C */
    for (size_t a = 0; a < W; a++)
        for (size_t b = 0; b < W; b++) moment[a * W + b] = half[b * W + a];
    times_blocks(f, moment, W, root, half);
    for (size_t c = 0; c < W; c++) *total += half[c * W + c];
    if (*total > 0) scale(half, W * W, 1 / *total);
    *z = half;
    return eigen(half, W, w);
}

/* Computes directions z [own, W] from a sketch, and the total variance. */
static fv_status sketched(fv_latent_fit *f, int32_t p, const double *root, fv_arena *arena,
                          double **z, double *total) {
    size_t W = width_of(f), own = (size_t)f->own;
    fv_latent_sketch *k = &f->sketch[p];
    double *weighted;
    FV_TRY(FV_ARENA_NEW(arena, k->s * W, weighted));
    FV_TRY(FV_ARENA_NEW(arena, own * W, *z));
    for (size_t c = 0; c < W; c++) f->mean[p][c] /= f->n;
    fv_latent_sketch_center(k, f->mean[p], f->n);
    *total = fv_latent_sketch_variance(k, root);
    times_blocks(f, k->y, k->s, root, weighted);
    return fv_latent_sketch_directions(k, arena, weighted, own, *z);
}

static fv_status end_part_in(fv_latent_fit *f, int32_t p, fv_arena *arena) {
    size_t W = width_of(f), D = (size_t)f->info.d_head, own = (size_t)f->own;
    double *root, *inverse, *z, total = 0;
    FV_TRY(FV_ARENA_NEW(arena, W * D, root));
    FV_TRY(FV_ARENA_NEW(arena, W * D, inverse));
    FV_TRY(part_roots(f, p, root, inverse));
    FV_TRY((f->sketch ? sketched : eigenvectors)(f, p, root, arena, &z, &total));
    if (total > 0) { /* scales the part's variance to 1 */
        scale(root, W * D, 1 / sqrt(total));
        scale(inverse, W * D, sqrt(total));
    }
    times_blocks(f, z, own, root, f->ahead[p]);
    times_blocks(f, z, own, inverse, f->back[p]);
    return FV_OK;
}

static fv_status end_part(fv_latent_fit *f, int32_t p) {
    fv_arena arena = {0};
    fv_status st = end_part_in(f, p, &arena);
    fv_arena_fini(&arena);
    return st;
}

static fv_status end_group(fv_latent_fit *f, int32_t g) {
    size_t P = joint_of(f, g);
    for (size_t i = 0; i < P * P; i++) f->joint[g][i] /= f->n;
    return eigen(f->joint[g], P, f->spectrum[g]);
}

/* Runs `end` for matrices in parallel, each on one thread. */
typedef struct matrices {
    fv_latent_fit *f;
    fv_status (*end)(fv_latent_fit *f, int32_t i);
    fv_status *status;
} matrices;

static void end_some(void *arg, int thread, int64_t begin, int64_t end) {
    const matrices *m = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) m->status[i] = m->end(m->f, (int32_t)i);
}

static fv_status end_all(fv_latent_fit *f, int32_t n,
                         fv_status (*end)(fv_latent_fit *f, int32_t i)) {
    matrices m = {.f = f, .end = end};
    FV_TRY(FV_ARENA_NEW(&f->arena, n, m.status));
    fv_threads_for(f->threads, n, 1, end_some, &m);
    for (int32_t i = 0; i < n; i++)
        if (m.status[i] != FV_OK)
            return FV_FAIL(m.status[i], "the directions of matrix %d cannot be measured: %s", i,
                           m.status[i] == FV_ENOMEM ? "out of memory"
                                                    : "its numbers are not finite");
    return FV_OK;
}

/* ---- levels ----------------------------------------------------------------------------- */

static double bin_at(int32_t i) { return ((i + 0.5) * 2 / BINS - 1) * SPAN; }

/* Rounds to whole steps, as kernels multiply them. */
static double whole(double x) {
    double at = rint(x / (double)FV_LATENT_UNIT);
    return (at > 127 ? 127 : at < -127 ? -127 : at) * (double)FV_LATENT_UNIT;
}

/* n levels, each the mean of the values nearest to it (Lloyd 1982). They start at equal shares of
 * the cube root of the density, to which many levels converge (Panter and Dite 1951), and end
 * rounded to whole steps. Returns their error. */
static double lloyd(const double *bin, int32_t n, float *level) {
    double x[1 << FV_LATENT_BITS], total = 0, all = 0, seen = 0, error = 0;
    for (int32_t i = 0; i < BINS; i++) total += cbrt(bin[i]), all += bin[i];
    for (int32_t i = 0, k = 0; i < BINS && k < n; i++)
        for (seen += cbrt(bin[i]); k < n && seen >= (k + 0.5) / n * total; k++) x[k] = bin_at(i);
    for (int32_t step = 0; step < LLOYD_STEPS; step++) {
        double sum[1 << FV_LATENT_BITS] = {0}, count[1 << FV_LATENT_BITS] = {0};
        for (int32_t i = 0, k = 0; i < BINS; i++) {
            while (k + 1 < n && bin_at(i) > (x[k] + x[k + 1]) / 2) k++;
            sum[k] += bin[i] * bin_at(i);
            count[k] += bin[i];
        }
        for (int32_t k = 0; k < n; k++)
            if (count[k] > 0) x[k] = sum[k] / count[k];
    }
    for (int32_t k = 0; k < n; k++) x[k] = whole(x[k]);
    for (int32_t i = 0, k = 0; i < BINS; i++) {
        while (k + 1 < n && bin_at(i) > (x[k] + x[k + 1]) / 2) k++;
        error += bin[i] * (bin_at(i) - x[k]) * (bin_at(i) - x[k]);
    }
    for (int32_t k = 0; k < n; k++) level[k] = (float)x[k];
    return error / all;
}

static void fit_levels(fv_latent_fit *f) {
    float *level = f->numbers, *error = f->numbers + FV_LATENT_LEVELS;
    error[0] = 1;
    for (int b = 1; b <= FV_LATENT_BITS; level += 1 << b, b++) {
        error[b] = (float)lloyd(f->bin, 1 << b, level);
        if (error[b] > error[b - 1]) error[b] = error[b - 1];
    }
}

/* ---- numbers ---------------------------------------------------------------------------- */

static void write_part(fv_latent_fit *f, int32_t g, int32_t p, int32_t first) {
    size_t W = width_of(f), R = (size_t)f->info.n_dir, own = (size_t)f->own, P = joint_of(f, g);
    float *mean = f->numbers + fv_latent_layer_at(&f->info, p / 2, p % 2), *decode = mean + W;
    float *encode = decode + R * W, *offset = f->numbers + fv_latent_group_at(&f->info, g) + R;
    for (size_t c = 0; c < W; c++) mean[c] = (float)f->mean[p][c];
    for (size_t r = 0; r < R; r++) {
        const double *v = f->joint[g] + r * P + (size_t)(p - first) * own;
        double off = 0;
        for (size_t c = 0; c < W; c++) {
            double in = 0, out = 0;
            for (size_t i = 0; i < own; i++) {
                in += v[i] * f->ahead[p][i * W + c];
                out += v[i] * f->back[p][i * W + c];
            }
            decode[r * W + c] = (float)out;
            encode[c * R + r] = (float)in;
            off += f->mean[p][c] * in;
        }
        offset[r] += (float)off;
    }
}

static void write_numbers(fv_latent_fit *f) {
    for (int32_t g = 0; g < n_group(f); g++) {
        int32_t first, end = parts_of(f, g, &first);
        float *deviation = f->numbers + fv_latent_group_at(&f->info, g);
        for (int32_t r = 0; r < f->info.n_dir; r++) {
            double w = f->spectrum[g][r];
            deviation[r] = w > 0 ? (float)sqrt(w) : 0;
        }
        for (int32_t p = first; p < end; p++) write_part(f, g, p, first);
    }
}

fv_status fv_latent_fit_end_pass(fv_latent_fit *f) {
    if (f->n == 0) return FV_FAIL(FV_EINVAL, "no visual token to measure directions on");
    if (f->pass == 0) FV_TRY(end_all(f, f->n_part, end_part));
    if (f->pass == 1) FV_TRY(end_all(f, n_group(f), end_group));
    if (f->pass == 2) {
        sum_histograms(f);
        fit_levels(f);
        write_numbers(f);
    }
    f->pass++;
    f->n = 0;
    return FV_OK;
}

const float *fv_latent_fit_numbers(const fv_latent_fit *f) { return f->numbers; }

double fv_latent_fit_energy(const fv_latent_fit *f, int32_t g, int32_t n) {
    int32_t first, end = parts_of(f, g, &first);
    double sum = 0;
    for (int32_t r = 0; r < n; r++) sum += f->spectrum[g][r];
    return sum / (end - first); /* each part has a total variance of 1 */
}
