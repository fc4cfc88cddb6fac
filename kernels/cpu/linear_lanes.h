#ifndef FOVEA_KERNELS_CPU_LINEAR_LANES_H
#define FOVEA_KERNELS_CPU_LINEAR_LANES_H

/* y = x w^T + bias (+ y), for a path with 16-lane vectors (dots_lanes.h).
 *
 * Few rows (decode): an item is a handful of weight rows; they are read once, in their stored type,
 * and used by all rows of x while they are in the cache.
 *
 * Many rows (prefill): an item is a block of the output. K is cut into blocks of MANY_K; for each,
 * the block's rows of w are packed once and used by all its rows of x. The sum over K is never
 * split: the 16 lane accumulators of every output are kept in scratch between blocks of K, and the
 * tree is formed after the last one. So GEMM and GEMV give the same bits. */
#include "kernels/cpu/dots_lanes.h"
#include "kernels/cpu/linear_parts_lanes.h"

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

/* ---- the cut into items ---------------------------------------------------------------- */

static bool is_few(const fv_tensor *x) { return x->rows <= FEW_ROWS; }

/* Whether one tile has all rows of x: then weights are read once, fastest in memory order. */
static bool reads_once(const fv_tensor *x) { return x->rows <= MR; }

/* Rows of an output block: M cut evenly. */
static int many_rows(const fv_linear_args *a) {
    int64_t M = a->x.rows;
    return (int)(div_up(div_up(M, div_up(M, MANY_M)), STRIP) * STRIP);
}

static int64_t items_of_part(const fv_linear_args *a, int p) {
    int32_t M = a->x.rows, N = a->part[p].w.rows;
    if (is_few(&a->x)) return div_up(N, FEW_N);
    return div_up(N, MANY_N) * div_up(M, many_rows(a));
}

static fv_cpu_plan linear_plan(const void *args) {
    const fv_linear_args *a = args;
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += items_of_part(a, p);
    if (is_few(&a->x)) {
        int64_t columns = FEW_GRAIN / (a->x.cols > 0 ? a->x.cols : 1);
        plan.grain = div_up(columns, FEW_N);
        plan.scratch_bytes = sizeof(float) * (size_t)a->x.rows * FEW_N * LANES;
    } else {
        size_t accs = (size_t)many_rows(a) * MANY_N * LANES;
        plan.scratch_bytes = sizeof(float) * (accs + (size_t)(MANY_N + STRIP) * MANY_K);
    }
    return plan;
}

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

/* Computes columns [n0, n0 + N) of y, N <= FEW_N, for mr <= MR rows of x. mr and t are constants after inlining. */
static ALWAYS_INLINE void once(const fv_tensor *x, const fv_linear_part *p, int64_t n0, int N,
                               const int mr, const fv_dtype t) {
    const size_t K = (size_t)x->cols, bytes_row = K * fv_dtype_bytes(t);
    const char *w = (const char *)p->w.data + (size_t)n0 * bytes_row;
    float wide[FEW_N];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
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

static ALWAYS_INLINE void once_rows(const fv_tensor *x, const fv_linear_part *p, int64_t n0, int N,
                                    const fv_dtype t) {
    switch (x->rows) {
    case 1: once(x, p, n0, N, 1, t); break;
    case 2: once(x, p, n0, N, 2, t); break;
    case 3: once(x, p, n0, N, 3, t); break;
    case 4: MR < 4 ? assert(0) : once(x, p, n0, N, 4, t); break;
    case 5: MR < 5 ? assert(0) : once(x, p, n0, N, 5, t); break;
    case 6: MR < 6 ? assert(0) : once(x, p, n0, N, 6, t); break;
    default: assert(0);
    }
}

static void linear_once(const fv_tensor *x, const fv_linear_part *p, int64_t n0, int N) {
    switch (p->w.dtype) {
    case FV_BF16: once_rows(x, p, n0, N, FV_BF16); break;
    case FV_F16: once_rows(x, p, n0, N, FV_F16); break;
    default: once_rows(x, p, n0, N, FV_F32);
    }
}

/* Computes columns [n0, n0 + N) of y, N <= FEW_N, for up to FEW_ROWS rows of x. */
static void linear_few(const fv_tensor *x, const fv_linear_part *p, int64_t n0, int N,
                       float *scratch) {
    size_t K = (size_t)x->cols, size = fv_dtype_bytes(p->w.dtype);
    const char *w = (const char *)p->w.data + (size_t)n0 * K * size;
    float out[FEW_ROWS * NR + NR], wide[FEW_N];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    few a = {.ldx = (size_t)x->ld, .M = x->rows, .bytes_row = K * size, .t = p->w.dtype};
    a.apart = true;
    size_t k0 = 0;
    do { /* once even if K = 0: then y is the bias */
        a.x = row_f32(x, 0) + k0;
        a.K = K - k0 < FEW_K ? K - k0 : FEW_K;
        a.resume = k0 > 0;
        a.wait = k0 + a.K < K;
        a.accs = scratch;
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

/* ---- many rows ------------------------------------------------------------------------- */

/* The state of an output block during its loop over K. */
typedef struct many {
    const fv_tensor *x;
    const fv_linear_part *p;
    int64_t m0, n0; /* the block: rows [m0, m0 + M), columns [n0, n0 + N) */
    int M, N, panels;
    size_t k0, kb;         /* the block of K */
    float *xs, *ws, *accs; /* scratch: a strip of x, w's panels, the accumulators */
    const float *bias;     /* [N] or NULL */
} many;

/* Returns the strip of x from row m on, in place, or a copy of the last one. *ld: row distance. */
static const float *many_x(const many *b, int m, size_t *ld) {
    const float *x = row_f32(b->x, b->m0 + m) + b->k0;
    *ld = (size_t)b->x->ld;
    if (b->M - m >= STRIP) return x;
    for (int i = 0; i < STRIP; i++) {
        int row = min_int(i, b->M - m - 1); /* missing rows repeat the last one */
        pack_panel(x + (size_t)row * *ld, FV_F32, 0, 1, b->kb, 1, b->xs + i * MANY_K);
    }
    *ld = MANY_K;
    return b->xs;
}

static void many_pack_w(const many *b, int j) {
    const fv_tensor *w = &b->p->w;
    size_t bytes_row = (size_t)w->cols * fv_dtype_bytes(w->dtype);
    const char *src = (const char *)w->data + (size_t)(b->n0 + j * NR) * bytes_row;
    pack_panel(src + b->k0 * fv_dtype_bytes(w->dtype), w->dtype, bytes_row,
               min_int(NR, b->N - j * NR), b->kb, NR, b->ws + (size_t)j * NR * MANY_K);
}

/* Adds MR rows of x, from row m on, times panel j of w to the accumulators. */
static NEVER_INLINE void many_tile(const many *b, int m, int j, const float *x, size_t ldx) {
    float *at = b->accs + (size_t)(m / MR * b->panels + j) * TILE * LANES;
    f32x16 acc[TILE];
    if (b->k0 == 0) {
        UNROLL for (int t = 0; t < TILE; t++) acc[t] = f32x16_zero();
    } else {
        UNROLL for (int t = 0; t < TILE; t++) acc[t] = f32x16_load(at + t * LANES);
    }
    dots_panel(acc, x, ldx, b->ws + (size_t)j * NR * MANY_K, b->kb);
    if (b->k0 + b->kb < (size_t)b->x->cols) {
        UNROLL for (int t = 0; t < TILE; t++) f32x16_store(at + t * LANES, acc[t]);
        return;
    }
    int rows = min_int(MR, b->M - m), cols = min_int(NR, b->N - j * NR);
    const float *bias = b->bias ? b->bias + j * NR : NULL;
    float out[TILE_OUT];
    trees(acc, TILE, out);
    if (cols == NR)
        store_rows(b->p, b->m0 + m, b->n0 + j * NR, rows, NR, bias, out, NR);
    else
        store_rows(b->p, b->m0 + m, b->n0 + j * NR, rows, cols, bias, out, NR);
}

static void linear_many(many *b, float *scratch) {
    size_t K = (size_t)b->x->cols, ldx;
    float wide[MANY_N];
    b->bias = bias_f32(&b->p->bias, b->n0, b->N, wide);
    b->panels = (int)div_up(b->N, NR);
    b->xs = scratch;
    b->ws = b->xs + (size_t)STRIP * MANY_K;
    b->accs = b->ws + (size_t)MANY_N * MANY_K;
    b->k0 = 0;
    do { /* once even if K = 0: then y is the bias */
        b->kb = K - b->k0 < MANY_K ? K - b->k0 : MANY_K;
        for (int m = 0; m < b->M; m += STRIP) {
            const float *x = many_x(b, m, &ldx);
            for (int j = 0; j < b->panels; j++) {
                if (m == 0) many_pack_w(b, j); /* its stores overlap the tile's arithmetic */
                for (int i = 0; i < STRIP && m + i < b->M; i += MR)
                    many_tile(b, m + i, j, x + (size_t)i * ldx, ldx);
            }
        }
        b->k0 += MANY_K;
    } while (b->k0 < K);
}

/* ---- items ----------------------------------------------------------------------------- */

static void linear_item(const fv_linear_args *a, const fv_linear_part *p, float *scratch,
                        int64_t i) {
    if (is_few(&a->x)) {
        const int N = min_int(FEW_N, p->w.rows - i * FEW_N);
        if (reads_once(&a->x))
            linear_once(&a->x, p, i * FEW_N, N);
        else
            linear_few(&a->x, p, i * FEW_N, N, scratch);
        return;
    }
    /* Neighbouring items share their weights and run at the same time. */
    int m = many_rows(a);
    int64_t blocks = div_up(a->x.rows, m);
    many b = {.x = &a->x, .p = p, .m0 = i % blocks * m, .n0 = i / blocks * MANY_N};
    b.M = min_int(m, a->x.rows - b.m0);
    b.N = min_int(MANY_N, p->w.rows - b.n0);
    linear_many(&b, scratch);
}

static void linear(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_linear_args *a = args;
    for (int p = 0; p < a->n_part; p++) {
        int64_t n = items_of_part(a, p);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            linear_item(a, &a->part[p], scratch, i);
        begin -= n;
        end -= n;
    }
}

#endif
