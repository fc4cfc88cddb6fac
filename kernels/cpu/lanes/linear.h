#ifndef FOVEA_KERNELS_CPU_LANES_LINEAR_H
#define FOVEA_KERNELS_CPU_LANES_LINEAR_H

/* y = x w^T + bias (+ y), for a path with 16-lane vectors (lanes/dots.h).
 *
 * Few rows (decode): an item is a handful of weight rows; they are read once, in their stored type,
 * and used by all rows of x while they are in the cache.
 *
 * Many rows (prefill): an item is a block of the output. K is cut into blocks of MANY_K; for each,
 * the block's rows of w are packed once and used by all its rows of x. The sum over K is never
 * split: the 16 lane accumulators of every output are kept in scratch between blocks of K, and the
 * tree is formed after the last one. So GEMM and GEMV give the same bits. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes/dots.h"
#include "kernels/cpu/lanes/weights.h"

/* Sizes in f32. L2 (2 MiB): accumulators 128 x 128 x 16 = 1 MiB, w 128 x 1024 = 512 KiB. L1
 * (48 KiB): STRIP rows of x, 24 KiB, stay while w's panels of 16 KiB pass. x is read from L3 once per
 * block of N, which is slow: 128 columns instead of 64 gained 5 % of the FMA rate, 1024 along K
 * instead of 512 another 8 % (640 x 1024 x 1024, Sapphire Rapids). */
enum { MANY_M = 128, MANY_N = 128, MANY_K = 1024 };

/* Rows of x that stay in L1: one tile with AVX-512, two with AVX2. */
enum { STRIP = 6 };
_Static_assert(STRIP % MR == 0, "a strip is whole tiles");

/* Up to this many rows are few: 32 rows in f32 read their weights at 38 % of the memory bandwidth
 * as few and at 29 % as many, 48 rows at 28 % and 25 % (4096 x 4096). */
enum { FEW_ROWS = 32 };

/* Columns and K of one step: the 4 rows of FEW_K that are prefetched take a memory latency to
 * multiply; 16 rows of x stay in L1 meanwhile. */
enum { FEW_N = 16, FEW_K = 512 };

/* Weights that a thread takes at a time when rows are few: some 10 us of reading, which bounds the threads' wait at
 * the end. */
enum { FEW_GRAIN = 1 << 16 };

/* ---- the end of a tile ----------------------------------------------------------------- */

/* Stores the dot products out [rows, ld] at [m0, n0] of y; bias [cols] or NULL. */
static ALWAYS_INLINE void store_rows(const fv_linear_part *p, int64_t m0, int64_t n0, int rows,
                                     const int cols, const float *bias, const float *out, int ld) {
    for (int i = 0; i < rows; i++, out += ld) {
        float *y = row_f32(&p->y, m0 + i) + n0, sum[NR];
        for (int j = 0; j < cols; j++) sum[j] = out[j];
        if (bias)
            for (int j = 0; j < cols; j++) sum[j] += bias[j];
        if (p->accumulate)
            for (int j = 0; j < cols; j++) sum[j] += y[j];
        for (int j = 0; j < cols; j++) y[j] = sum[j];
    }
}

/* ---- few rows -------------------------------------------------------------------------- */

/* An item of mr <= MR rows of x. mr and t are constants after inlining. */
static ALWAYS_INLINE void once(const fv_gemm_item *of, const int mr, const fv_dtype t) {
    const fv_tensor *x = &of->call->a->x;
    const fv_linear_part *p = of->p;
    const size_t K = (size_t)x->cols, bytes_row = K * fv_dtype_bytes(t);
    const int64_t n0 = of->n0;
    const int N = of->N;
    const char *w = (const char *)p->w.data + (size_t)n0 * bytes_row;
    const float *bias = of->bias;
    few a = {.ldx = (size_t)x->ld, .bytes_row = bytes_row, .K = K};
    for (int n = 0; n < N; n += NR) {
        f32x16 acc[TILE];
        float out[TILE_OUT];
        a.n = min_int(NR, N - n);
        a.w = w + (size_t)n * bytes_row;
        a.next = (uintptr_t)a.w + (size_t)a.n * bytes_row;
        UNROLL for (int i = 0; i < mr * NR; i++) acc[i] = f32x16_zero();
        dots_stored(acc, mr, t, &a, row_f32(x, 0));
        trees(acc, mr * NR, out);
        if (a.n == NR)
            store_rows(p, 0, n0 + n, mr, NR, bias ? bias + n : NULL, out, NR);
        else
            store_rows(p, 0, n0 + n, mr, a.n, bias ? bias + n : NULL, out, NR);
    }
}

static ALWAYS_INLINE void once_rows(const fv_gemm_item *of, const fv_dtype t) {
    switch (of->M) {
    case 1: once(of, 1, t); break;
    case 2: once(of, 2, t); break;
    case 3: once(of, 3, t); break;
    case 4: MR < 4 ? assert(0) : once(of, 4, t); break;
    case 5: MR < 5 ? assert(0) : once(of, 5, t); break;
    case 6: MR < 6 ? assert(0) : once(of, 6, t); break;
    default: assert(0);
    }
}

static void item_once(fv_gemm_item *t) {
    switch (t->p->w.dtype) {
    case FV_BF16: once_rows(t, FV_BF16); break;
    case FV_F16: once_rows(t, FV_F16); break;
    default: once_rows(t, FV_F32);
    }
}

/* An item of up to FEW_ROWS rows of x. */
static void item_few(fv_gemm_item *t) {
    const fv_tensor *x = &t->call->a->x;
    const fv_linear_part *p = t->p;
    const int64_t n0 = t->n0;
    const int N = t->N;
    size_t K = (size_t)x->cols, size = fv_dtype_bytes(p->w.dtype);
    const char *w = (const char *)p->w.data + (size_t)n0 * K * size;
    float out[FEW_ROWS * NR + NR];
    const float *bias = t->bias;
    few a = {.ldx = (size_t)x->ld, .M = x->rows, .bytes_row = K * size, .t = p->w.dtype};
    a.apart = true;
    size_t k0 = 0;
    do { /* once even if K = 0: then y is the bias */
        a.x = row_f32(x, 0) + k0;
        a.K = K - k0 < FEW_K ? K - k0 : FEW_K;
        a.resume = k0 > 0;
        a.wait = k0 + a.K < K;
        a.accs = (float *)(void *)t->scratch;
        for (int n = 0; n < N; n += NR, a.accs += a.M * NR * LANES) {
            a.w = w + ((size_t)n * K + k0) * size;
            a.n = min_int(NR, N - n);
            /* the item's next columns, or its first ones at the next K, or the next item */
            a.next = (uintptr_t)w + size * (n + NR < N ? (size_t)(n + NR) * K + k0
                                            : a.wait   ? k0 + FEW_K
                                                       : (size_t)N * K);
            dots_few(&a, out);
            if (!a.wait) store_rows(p, 0, n0 + n, a.M, a.n, bias ? bias + n : NULL, out, NR);
        }
        k0 += FEW_K;
    } while (k0 < K);
}

static size_t few_scratch(const fv_linear_args *a) {
    return sizeof(float) * (size_t)a->x.rows * FEW_N * LANES;
}

/* ---- many rows ------------------------------------------------------------------------- */

static size_t columns_of_block(const fv_gemm_item *t) {
    const size_t left = (size_t)t->call->a->x.cols - t->k * MANY_K;
    return left < MANY_K ? left : MANY_K;
}

/* The strip of x from row m on, in place, or a copy of the last one, made for the first panel. *ld: row distance. */
static const float *strip_of(const fv_gemm_item *t, int m, int rows, bool copy, size_t *ld) {
    const float *x = row_f32(&t->call->a->x, t->m0 + m) + t->k * MANY_K;
    float *xs = (float *)(void *)t->scratch;
    *ld = (size_t)t->call->a->x.ld;
    if (rows == STRIP) return x;
    for (int i = 0; copy && i < STRIP; i++) {
        int row = min_int(i, rows - 1); /* missing rows repeat the last one */
        pack_panel(x + (size_t)row * *ld, FV_F32, 0, 1, columns_of_block(t), 1, xs + i * MANY_K);
    }
    *ld = MANY_K;
    return xs;
}

static size_t strip_bytes(const fv_linear_args *a) {
    (void)a;
    return sizeof(float) * STRIP * MANY_K;
}

static void f32_pack_w(fv_gemm_item *t, int n, int cols, void *panel) {
    const fv_tensor *w = &t->p->w;
    const size_t size = fv_dtype_bytes(w->dtype), bytes_row = (size_t)w->cols * size;
    const char *src = (const char *)w->data + (size_t)(t->n0 + n) * bytes_row;
    pack_panel(src + t->k * MANY_K * size, w->dtype, bytes_row, cols, columns_of_block(t), NR,
               panel);
}

/* Adds MR rows of x from m on, `rows` of which exist, times a panel to the 16 lanes of each output; writes y after the
 * last block of K, from registers. */
static NEVER_INLINE void f32_tile(const fv_gemm_item *t, int m, int rows, int n, int cols,
                                  const float *x, size_t ldx, const float *panel, float *at) {
    f32x16 acc[TILE];
    if (t->k == 0) {
        UNROLL for (int i = 0; i < TILE; i++) acc[i] = f32x16_zero();
    } else {
        UNROLL for (int i = 0; i < TILE; i++) acc[i] = f32x16_load(at + i * LANES);
    }
    dots_panel(acc, x, ldx, panel, columns_of_block(t));
    if (!t->last) {
        UNROLL for (int i = 0; i < TILE; i++) f32x16_store(at + i * LANES, acc[i]);
        return;
    }
    const float *bias = t->bias ? t->bias + n : NULL;
    float out[TILE_OUT];
    trees(acc, TILE, out);
    if (cols == NR)
        store_rows(t->p, t->m0 + m, t->n0 + n, rows, NR, bias, out, NR);
    else
        store_rows(t->p, t->m0 + m, t->n0 + n, rows, cols, bias, out, NR);
}

static void f32_strip(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel,
                      void *sums) {
    size_t ldx;
    const float *x = strip_of(t, m, rows, n == 0, &ldx);
    for (int i = 0; i < rows; i += MR)
        f32_tile(t, m + i, min_int(MR, rows - i), n, cols, x + (size_t)i * ldx, ldx, panel,
                 (float *)sums + (size_t)i * NR * LANES);
}

/* ---- the list --------------------------------------------------------------------------- */

static const fv_gemm_x x_f32 = {.products = 1 << FV_PRODUCT_F32};

static const fv_gemm_tiles f32_tiles = {
    STRIP,      NR,        MANY_K, sizeof(float) * NR *MANY_K, sizeof(float) * LANES, false,
    f32_pack_w, f32_strip, NULL};

/* One tile has all rows of x: weights are read once, fastest in memory order. */
static const fv_gemm_impl gemm_f32_once = {.name = "one-tile",
                                           .x = &x_f32,
                                           .rows_max = MR,
                                           .columns = FEW_N,
                                           .grain = FEW_GRAIN,
                                           .item = item_once};

static const fv_gemm_impl gemm_f32_few = {.name = "in-place",
                                          .x = &x_f32,
                                          .rows_max = FEW_ROWS,
                                          .columns = FEW_N,
                                          .grain = FEW_GRAIN,
                                          .scratch_bytes = few_scratch,
                                          .item = item_few};

static const fv_gemm_impl gemm_f32 = {.name = "panels",
                                      .x = &x_f32,
                                      .columns = MANY_N,
                                      .rows = MANY_M,
                                      .scratch_bytes = strip_bytes,
                                      .tiles = &f32_tiles};

#endif
