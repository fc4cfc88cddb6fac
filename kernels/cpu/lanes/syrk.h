#ifndef FOVEA_KERNELS_CPU_LANES_SYRK_H
#define FOVEA_KERNELS_CPU_LANES_SYRK_H

/* g = x x^T in double (kernels/ops.h), in the compiler's vectors of 8 doubles.
 *
 * An item is SYRK_BLOCK rows of the result, computed in tiles of SYRK_BLOCK x SYRK_BLOCK sums: 8 rows
 * are loaded and widened for 16 products. Products are exact, so fusing them with the additions changes
 * nothing. */
#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/path.h"

enum { SYRK_BLOCK = 4, SYRK_LANES = 8 };

typedef double f64x8 __attribute__((vector_size(8 * sizeof(double))));
typedef float f32x8 __attribute__((vector_size(8 * sizeof(float))));

static fv_cpu_plan syrk_plan(const void *args) {
    const fv_syrk_args *a = args;
    return (fv_cpu_plan){.n_item = div_up(a->x.rows, SYRK_BLOCK), .grain = 1};
}

/* Addresses of rows m + i of x; missing rows repeat the last one. */
static void syrk_rows(const fv_tensor *x, int64_t m, const float *row[SYRK_BLOCK]) {
    for (int i = 0; i < SYRK_BLOCK; i++) row[i] = row_f32(x, m + i < x->rows ? m + i : x->rows - 1);
}

/* Loads n <= 8 numbers, widened and padded with zeros. */
static ALWAYS_INLINE void syrk_load(const float *x, size_t n, f64x8 *to) {
    f32x8 v = {0};
    memcpy(&v, x, n * sizeof *x);
    *to = __builtin_convertvector(v, f64x8);
}

static ALWAYS_INLINE void syrk_step(const float *const x[SYRK_BLOCK],
                                    const float *const y[SYRK_BLOCK], size_t k, const size_t n,
                                    f64x8 acc[SYRK_BLOCK * SYRK_BLOCK]) {
    f64x8 b[SYRK_BLOCK], a;
    UNROLL for (int j = 0; j < SYRK_BLOCK; j++) syrk_load(y[j] + k, n, &b[j]);
    UNROLL for (int i = 0; i < SYRK_BLOCK; i++) {
        syrk_load(x[i] + k, n, &a);
        UNROLL for (int j = 0; j < SYRK_BLOCK; j++) acc[i * SYRK_BLOCK + j] += a * b[j];
    }
}

/* Computes the tile of rows from m on and columns from n on. */
static NEVER_INLINE void syrk_tile(const fv_syrk_args *a, int64_t m, int64_t n) {
    const float *x[SYRK_BLOCK], *y[SYRK_BLOCK];
    f64x8 acc[SYRK_BLOCK * SYRK_BLOCK] = {0};
    size_t K = (size_t)a->x.cols, k = 0;
    syrk_rows(&a->x, m, x);
    syrk_rows(&a->x, n, y);
    for (; k + SYRK_LANES <= K; k += SYRK_LANES) syrk_step(x, y, k, SYRK_LANES, acc);
    if (k < K) syrk_step(x, y, k, K - k, acc);
    for (int i = 0; i < SYRK_BLOCK && m + i < a->x.rows; i++)
        for (int j = 0; j < SYRK_BLOCK && n + j <= m + i; j++) {
            double sum[SYRK_LANES];
            memcpy(sum, &acc[i * SYRK_BLOCK + j], sizeof sum);
            for (int s = SYRK_LANES / 2; s > 0; s /= 2)
                for (int l = 0; l < s; l++) sum[l] += sum[l + s];
            a->g[(m + i) * a->x.rows + n + j] = sum[0];
        }
}

static void syrk(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_syrk_args *a = args;
    (void)scratch;
    for (int64_t m = begin * SYRK_BLOCK; m < end * SYRK_BLOCK; m += SYRK_BLOCK)
        for (int64_t n = 0; n <= m; n += SYRK_BLOCK) syrk_tile(a, m, n);
}

#endif
