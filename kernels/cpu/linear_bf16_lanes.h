#ifndef FOVEA_KERNELS_CPU_LINEAR_BF16_LANES_H
#define FOVEA_KERNELS_CPU_LINEAR_BF16_LANES_H

/* y = x w^T + bias (+ y) in bf16, for a path with 16-lane vectors.
 *
 * Lanes are rows of w: 16 rows and a block of K are transposed into a panel of f32, [K, 16], and
 * each number of x is multiplied by a row of the panel. So even and odd are vectors, an output never
 * needs a sum over lanes, and one row of x takes the same steps as many. Only acc, one number per
 * output, is kept between blocks of K.
 *
 * Up to four rows of x read w in place, without a panel. linear_bf16_pairs.c is used instead where AVX-512
 * has BF16 and all of w is in bf16.
 *
 * Only the products flush subnormal numbers (bf16_products): conversions and biases need them. */
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/linear_bf16_pairs.h"
#include "kernels/cpu/linear_parts_lanes.h"
#include "kernels/cpu/product_bf16.h"

/* A panel of f32, 16 KiB, stays in L1. With many rows of x the rows of a tile stay there too, and
 * panels in L2. */
enum { BF16_K = 256, BF16_PANEL = BF16_K * LANES, BF16_PANELS = 4, BF16_FEW = 16 };
_Static_assert((int)BF16_ROWS == (int)LANES, "a lane is a row of w");
_Static_assert((int)BF16_K == (int)BLOCK_COLUMNS, "a panel is a block of K");

/* Rows of x per tile: even and odd of each, and a row of the panel, in registers. */
enum { BF16_MR = MR >= 6 ? 6 : 2 };

/* From this many rows on, packing a panel in words pays off (product_bf16_pairs.c). */
enum { BF16_PAIRS = 12 };

#ifdef __AVX512F__
static bool bf16_in_pairs(const fv_linear_args *a) { return fv_pairs_take(a); }
#else
static bool bf16_in_pairs(const fv_linear_args *a) {
    (void)a;
    return false;
}
#endif

/* ---- x --------------------------------------------------------------------------------- */

static fv_cpu_plan pack_bf16_plan(const void *args) {
    const fv_cpu_packed_linear *b = args;
    if (bf16_in_pairs(b->a)) return fv_pairs_pack_bf16_plan(args);
    size_t ldx = bf16_steps((size_t)b->a->x.cols) * BF16_STEP;
    fv_cpu_plan plan = {.n_item = b->a->x.rows, .grain = div_up(16384, (int64_t)ldx + 1)};
    plan.shared_bytes = (size_t)b->a->x.rows * ldx * sizeof(float);
    return plan;
}

static void pack_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    size_t K = (size_t)b->a->x.cols, ldx = bf16_steps(K) * BF16_STEP;
    if (bf16_in_pairs(b->a)) {
        fv_pairs_pack_bf16(args, scratch, begin, end);
        return;
    }
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(&b->a->x, m);
        float *to = (float *)b->x + (size_t)m * ldx;
        for (size_t k = 0; k < K; k++) to[k] = f32_of_bf16(bf16_of_f32(x[k]));
        memset(to + K, 0, (ldx - K) * sizeof *to);
    }
}

/* ---- products -------------------------------------------------------------------------- */

static int bf16_columns(const fv_linear_args *a) {
    return LANES * (a->x.rows <= BF16_FEW ? 1 : BF16_PANELS);
}

static fv_cpu_plan linear_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    if (bf16_in_pairs(a)) return fv_pairs_linear_bf16_plan(args);
    int columns = bf16_columns(a);
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += div_up(a->part[p].w.rows, columns);
    if (a->x.rows <= BF16_FEW) plan.grain = div_up(1 << 18, (int64_t)columns * (a->x.cols + 1));
    plan.scratch_bytes = sizeof(float) * (size_t)columns * ((size_t)BF16_K + (size_t)a->x.rows);
    return plan;
}

/* Adds mr rows of x times the panel at w to acc; mr is a constant after inlining. */
static ALWAYS_INLINE void bf16_tile(const bf16_product *a, const float *x, const float *w,
                                    float *at, const int mr) {
    const size_t ldx = a->ldx, ldw = a->ld_line, ld = a->ld_row;
    f32x16 acc[BF16_MR];
    UNROLL for (int i = 0; i < mr; i++) acc[i] = f32x16_load(at + (size_t)i * ld);
    for (size_t s = 0; s < a->steps; s++) {
        f32x16 even[BF16_MR], odd[BF16_MR];
        UNROLL for (int i = 0; i < mr; i++) even[i] = odd[i] = f32x16_zero();
        for (int k = 0; k < BF16_STEP; k += 2, x += 2, w += 2 * ldw) {
            f32x16 w_even = f32x16_load(w), w_odd = f32x16_load(w + ldw);
            UNROLL for (int i = 0; i < mr; i++) {
                even[i] = f32x16_fma(f32x16_all(x[(size_t)i * ldx]), w_even, even[i]);
                odd[i] = f32x16_fma(f32x16_all(x[(size_t)i * ldx + 1]), w_odd, odd[i]);
            }
        }
        UNROLL for (int i = 0; i < mr; i++) {
            acc[i] = f32x16_add(acc[i], f32x16_add(even[i], odd[i]));
        }
    }
    UNROLL for (int i = 0; i < mr; i++) f32x16_store(at + (size_t)i * ld, acc[i]);
}

/* Not inlined: the compiler must not move its arithmetic across the caller's changes of MXCSR. */
static NEVER_INLINE void bf16_tiles(const bf16_product *a) {
    for (int m = 0; m < a->M; m += BF16_MR) {
        const float *x = a->x + (size_t)m * a->ldx;
        for (int j = 0; j < a->panels; j++) {
            const float *w = a->w + (size_t)j * a->ldw;
            float *at = a->acc + (size_t)j * a->ld_panel + (size_t)m * a->ld_row;
            switch (min_int(BF16_MR, a->M - m)) {
            case 1: bf16_tile(a, x, w, at, 1); break;
            case 2: bf16_tile(a, x, w, at, 2); break;
#if defined(__AVX512F__)
            case 3: bf16_tile(a, x, w, at, 3); break;
            case 4: bf16_tile(a, x, w, at, 4); break;
            case 5: bf16_tile(a, x, w, at, 5); break;
            default: bf16_tile(a, x, w, at, 6);
#endif
            }
        }
    }
}

static void bf16_products(const bf16_product *a) {
#ifdef __AVX512F__
    if (a->M >= BF16_PAIRS && fv_bf16_pairs_run_here()) {
        fv_pairs_packed_products.multiply(a);
        return;
    }
#endif
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    bf16_tiles(a);
    _mm_setcsr(before);
}

/* bf16_panel for groups of integers, over all steps of a block of K; `scales` as in quantized_block. */
static ALWAYS_INLINE void quantized_panel_of(const fv_tensor *w, int64_t n0, int rows, size_t k,
                                             size_t steps, const int scales, float *panel) {
    enum { PART = BF16_ROWS * BF16_STEP };
    _Alignas(64) uint16_t part[BLOCK_STEPS * PART];
    const fv_quant quant =
        *w->quant; /* a copy, so that the compiler knows that stores do not change it */
    fv_tensor own = *w;
    own.quant = &quant;
    if (rows < LANES) memset(part, 0, sizeof part);
    for (int i = 0; i < rows; i++)
        quantized_block(&own, n0 + i, k, scales, part + i * BF16_STEP, PART);
    for (size_t s = 0; s < steps; s++)
        bf16x32_transpose(part + s * PART, BF16_STEP * sizeof *part, panel + s * PART);
}

static NEVER_INLINE void quantized_panel(const fv_tensor *w, int64_t n0, int rows, size_t k,
                                         size_t steps, float *panel) {
    switch (int4_scales(w)) {
    case BLOCK_COLUMNS / 32:
        quantized_panel_of(w, n0, rows, k, steps, BLOCK_COLUMNS / 32, panel);
        return;
    case BLOCK_COLUMNS / 128:
        quantized_panel_of(w, n0, rows, k, steps, BLOCK_COLUMNS / 128, panel);
        return;
    default: quantized_panel_of(w, n0, rows, k, steps, 0, panel);
    }
}

/* Packs rows [n0, n0 + rows) of w and `steps` steps from column k0 on as a panel; prefetches `next` bytes
 * after the bytes read now. */
static void bf16_panel(const fv_tensor *w, int64_t n0, int rows, size_t k0, size_t steps,
                       ptrdiff_t next, float *panel) {
    size_t K = (size_t)w->cols, stride = K * sizeof(uint16_t);
    bool whole = w->dtype == FV_BF16 && rows == LANES;
    if (w->quant) {
        quantized_panel(w, n0, rows, k0 / BLOCK_COLUMNS, steps, panel);
        return;
    }
    for (size_t k = k0; steps-- > 0; k += BF16_STEP, panel += BF16_STEP * LANES) {
        uint16_t part[BF16_ROWS * BF16_STEP];
        const char *at = (const char *)w->data + ((size_t)n0 * K + k) * sizeof(uint16_t);
        if (whole && k + BF16_STEP <= K) {
            for (int i = 0; i < LANES; i++)
                _mm_prefetch((const void *)((uintptr_t)at + (size_t)i * stride + (size_t)next),
                             _MM_HINT_T1);
            bf16x32_transpose(at, stride, panel);
            continue;
        }
        size_t cols = K - k < BF16_STEP ? K - k : BF16_STEP;
        bf16_rows(w, n0, rows, k, cols, BF16_STEP, BF16_STEP, part);
        bf16x32_transpose(part, BF16_STEP * sizeof *part, panel);
    }
}

/* ---- few rows of x --------------------------------------------------------------------- */

/* Up to BF16_IN_PLACE rows of x read w in place: a panel would be used too little to pay off. */
enum { BF16_IN_PLACE = 4, BF16_AHEAD = 16 };

/* Arguments of bf16_few_products: M rows of x, K numbers of up to 16 rows of w, and acc of each row of x. */
typedef struct bf16_few {
    const float *x;
    size_t ldx;
    int M, rows;
    const uint16_t *w; /* rows without gaps */
    size_t K;
    float *acc;
    size_t ld;
    ptrdiff_t next; /* bytes from a row to the one to prefetch; 0: the rows that follow */
} bf16_few;

/* Bytes from column k of a row to the numbers multiplied BF16_AHEAD steps later: in this row, or in one 16
 * or more rows further on. */
static ALWAYS_INLINE ptrdiff_t bf16_ahead(size_t k, size_t K) {
    const size_t steps = bf16_steps(K), step = k / BF16_STEP + BF16_AHEAD;
    const size_t element = step / steps * BF16_ROWS * K + step % steps * BF16_STEP;
    return ((ptrdiff_t)element - (ptrdiff_t)k) * (ptrdiff_t)sizeof(uint16_t);
}

static ALWAYS_INLINE void bf16_few_rows(const bf16_few *a, const int mr) {
    size_t stride = a->K * sizeof(uint16_t);
    f32x16 acc[BF16_IN_PLACE];
    UNROLL for (int i = 0; i < mr; i++) acc[i] = f32x16_load(a->acc + (size_t)i * a->ld);
    for (size_t k = 0; k < a->K; k += BF16_STEP) {
        const uint16_t *at = a->w + k;
        if (a->rows == LANES && k + BF16_STEP <= a->K) {
            ptrdiff_t ahead = a->next ? a->next : bf16_ahead(k, a->K);
            bf16x32_step(at, stride, ahead, a->x + k, a->ldx, mr, acc);
            continue;
        }
        uint16_t part[BF16_ROWS * BF16_STEP] = {0};
        size_t cols = a->K - k < BF16_STEP ? a->K - k : BF16_STEP;
        for (int i = 0; i < a->rows; i++)
            memcpy(part + i * BF16_STEP, at + (size_t)i * a->K, cols * sizeof *part);
        bf16x32_step(part, BF16_STEP * sizeof *part, 0, a->x + k, a->ldx, mr, acc);
    }
    UNROLL for (int i = 0; i < mr; i++) f32x16_store(a->acc + (size_t)i * a->ld, acc[i]);
}

/* Not inlined, as bf16_tiles. */
static NEVER_INLINE void bf16_few_tiles(const bf16_few *a) {
    switch (a->M) {
    case 1: bf16_few_rows(a, 1); break;
    case 2: bf16_few_rows(a, 2); break;
    case 3: bf16_few_rows(a, 3); break;
    default: bf16_few_rows(a, BF16_IN_PLACE);
    }
}

static void bf16_few_products(const bf16_few *a) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    bf16_few_tiles(a);
    _mm_setcsr(before);
}

/* ---- items ----------------------------------------------------------------------------- */

static bool bf16_in_place(const fv_tensor *w, int rows) {
    return rows <= BF16_IN_PLACE && w->dtype == FV_BF16 && !w->quant;
}

/* Computes columns [n0, n0 + N), N <= 16, of y for few rows of x. */
static void linear_bf16_few(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0,
                            int N) {
    size_t K = (size_t)b->a->x.cols;
    float acc[BF16_IN_PLACE * LANES] = {0}, wide[LANES];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    bf16_few_products(&(bf16_few){.x = b->x,
                                  .ldx = bf16_steps(K) * BF16_STEP,
                                  .M = b->a->x.rows,
                                  .rows = N,
                                  .w = (const uint16_t *)p->w.data + (size_t)n0 * K,
                                  .K = K,
                                  .acc = acc,
                                  .ld = LANES});
    for (int m = 0; m < b->a->x.rows; m++) store_sums(p, m, n0, N, bias, acc + m * LANES);
}

/* Computes columns [n0, n0 + N) of y. */
static void linear_bf16_item(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0,
                             int N, float *scratch) {
    size_t K = (size_t)b->a->x.cols, all = bf16_steps(K), ldx = all * BF16_STEP;
    int M = b->a->x.rows, panels = (int)div_up(N, LANES);
    if (bf16_in_place(&p->w, M)) {
        linear_bf16_few(b, p, n0, N);
        return;
    }
    float *accs = scratch + (size_t)panels * BF16_PANEL, wide[BF16_PANELS * LANES];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    memset(accs, 0, (size_t)panels * (size_t)M * LANES * sizeof *accs);
    for (size_t s = 0; s < all; s += BF16_K / BF16_STEP) {
        size_t k0 = s * BF16_STEP, steps = all - s;
        if (steps > BF16_K / BF16_STEP) steps = BF16_K / BF16_STEP;
        ptrdiff_t next = steps < all - s ? BF16_K : (ptrdiff_t)(LANES * K) - (ptrdiff_t)k0;
        for (int j = 0; j < panels; j++)
            bf16_panel(&p->w, n0 + j * LANES, min_int(LANES, N - j * LANES), k0, steps,
                       next * (ptrdiff_t)sizeof(uint16_t), scratch + (size_t)j * BF16_PANEL);
        bf16_products(&(bf16_product){.x = (const float *)b->x + k0,
                                      .w = scratch,
                                      .ldx = ldx,
                                      .ldw = BF16_PANEL,
                                      .ld_line = LANES,
                                      .M = M,
                                      .panels = panels,
                                      .steps = steps,
                                      .acc = accs,
                                      .ld_row = LANES,
                                      .ld_panel = (size_t)M * LANES});
    }
    for (int j = 0; j < panels; j++)
        for (int m = 0; m < M; m++)
            store_sums(p, m, n0 + j * LANES, min_int(LANES, N - j * LANES),
                       bias ? bias + j * LANES : NULL,
                       accs + ((size_t)j * (size_t)M + (size_t)m) * LANES);
}

static void linear_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    if (bf16_in_pairs(b->a)) {
        fv_pairs_linear_bf16(args, scratch, begin, end);
        return;
    }
    int columns = bf16_columns(b->a);
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t N = b->a->part[p].w.rows, n = div_up(N, columns);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            linear_bf16_item(b, &b->a->part[p], i * columns, min_int(columns, N - i * columns),
                             scratch);
        begin -= n;
        end -= n;
    }
}

#endif
