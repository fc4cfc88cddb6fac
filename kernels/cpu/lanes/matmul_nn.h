#ifndef FOVEA_KERNELS_CPU_LANES_MATMUL_NN_H
#define FOVEA_KERNELS_CPU_LANES_MATMUL_NN_H

/* y = x w with w [K, N] row-major (kernels/ops.h), over 16-lane vectors.
 *
 * An item is a band of NR vectors of columns. K is processed in blocks: the block's rows of the
 * band are widened into scratch once and used by all rows of x, whose chains are kept in y between
 * blocks; rows of f32 that are close to each other are used in place. Lanes run along N and every step
 * is one fma, so there is no tree. */
#include "kernels/cpu/lanes/chains.h"
#include "kernels/cpu/lanes/dots.h"
#include "kernels/cpu/path.h"

enum { BAND = NR * LANES, BAND_K = 128, CLOSE = 64 };

static fv_cpu_plan matmul_nn_plan(const void *args) {
    const fv_matmul_nn_args *a = args;
    return (fv_cpu_plan){.n_item = div_up(a->y.cols, BAND),
                         .grain = 1,
                         .scratch_bytes = sizeof(float) * (BAND_K + MR) * BAND};
}

/* Widens rows [k0, k0 + K) of columns [n0, n0 + N) of w; missing columns become zero. */
static void matmul_nn_pack(const fv_tensor *w, size_t k0, size_t K, size_t n0, int N,
                           float *panel) {
    size_t size = fv_dtype_bytes(w->dtype), stride = (size_t)w->ld * size;
    const char *row = (const char *)w->data + k0 * stride + n0 * size;
    for (size_t k = 0; k < K; k++, row += stride, panel += BAND) {
        pack_panel(row, w->dtype, 0, 1, (size_t)N, 1, panel);
        for (int j = (int)steps_of((size_t)N) * LANES; j < BAND; j++) panel[j] = 0.0f;
    }
}

/* Whether w serves as a panel in place: in f32, with rows close enough that a copy gains nothing. */
static bool matmul_nn_is_panel(const fv_tensor *w, int N) {
    return w->dtype == FV_F32 && N == BAND && w->ld <= CLOSE;
}

/* Computes columns [n0, n0 + N) of all rows of y; a partial band is summed in scratch. */
static void matmul_nn_band(const fv_matmul_nn_args *a, size_t n0, int N, float *scratch) {
    float *panel = scratch, *copy = scratch + (size_t)BAND_K * BAND;
    size_t K = (size_t)a->w.rows, ldy = (size_t)a->y.ld, k = 0;
    bool there = matmul_nn_is_panel(&a->w, N);
    chains to = {.ldx = (size_t)a->x.ld,
                 .panel = panel,
                 .ldp = there ? (size_t)a->w.ld : BAND,
                 .registers = NR,
                 .ldy = ldy};
    do { /* once even if K = 0: then y is 0 */
        to.K = K - k < BAND_K ? K - k : BAND_K;
        to.c = k ? GOES_ON : NULL;
        to.x = row_f32(&a->x, 0) + k;
        to.y = row_f32(&a->y, 0) + n0;
        if (there)
            to.panel = row_f32(&a->w, (int64_t)k) + n0;
        else
            matmul_nn_pack(&a->w, k, to.K, n0, N, panel);
        if (N == BAND) chains_all(to, a->y.rows, 0);
        to.ldy = N == BAND ? ldy : BAND;
        for (int64_t m = 0; N < BAND && m < a->y.rows; m += MR) {
            size_t bytes = (size_t)N * sizeof(float);
            float *y = row_f32(&a->y, m) + n0;
            int M = min_int(MR, a->y.rows - m);
            for (int i = 0; k && i < M; i++) memcpy(copy + i * BAND, y + (size_t)i * ldy, bytes);
            chains_rows(&to, row_f32(&a->x, m) + k, to.c, copy, M);
            for (int i = 0; i < M; i++) memcpy(y + (size_t)i * ldy, copy + i * BAND, bytes);
        }
        k += BAND_K;
    } while (k < K);
}

static void matmul_nn(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_matmul_nn_args *a = args;
    for (int64_t i = begin; i < end; i++)
        matmul_nn_band(a, (size_t)i * BAND, min_int(BAND, a->y.cols - i * BAND), scratch);
}

#endif
