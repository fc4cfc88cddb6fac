#ifndef FOVEA_KERNELS_CPU_LANES_LINEAR_BF16_H
#define FOVEA_KERNELS_CPU_LANES_LINEAR_BF16_H

/* y = x w^T + bias (+ y) in bf16, for a path with 16-lane vectors.
 *
 * Lanes are rows of w: 16 rows and a block of K are transposed into a panel of f32, [K, 16], and
 * each number of x is multiplied by a row of the panel. So even and odd are vectors, an output never
 * needs a sum over lanes, and one row of x takes the same steps as many. Up to four rows of x read w in place,
 * without a panel.
 *
 * Only the products flush subnormal numbers (bf16_products): conversions and biases need them. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"
#include "kernels/cpu/packed_products.h"

/* A panel of f32, 16 KiB, stays in L1, with the rows of a tile. */
enum { BF16_K = 256, BF16_PANEL = BF16_K * LANES, BF16_PANELS = 4, BF16_FEW = 16 };
_Static_assert((int)BF16_ROWS == (int)LANES, "a lane is a row of w");
_Static_assert((int)BF16_K == (int)BLOCK_COLUMNS, "a panel is a block of K");

/* Rows of x per tile: even and odd of each, and a row of the panel, in registers. */
enum { BF16_MR = MR >= 6 ? 6 : 2 };

/* From this many rows on, packing a panel once more as words for AVX-512 BF16 pays off. */
enum { BF16_WORDS = 12 };

/* ---- x --------------------------------------------------------------------------------- */

static size_t bf16_ldx(const fv_linear_args *a) {
    return bf16_steps((size_t)a->x.cols) * BF16_STEP;
}

static fv_cpu_plan pack_x_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    return (fv_cpu_plan){.n_item = a->x.rows,
                         .grain = div_up(16384, (int64_t)bf16_ldx(a) + 1),
                         .shared_bytes = (size_t)a->x.rows * bf16_ldx(a) * sizeof(float)};
}

static void pack_x_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *c = args;
    const size_t K = (size_t)c->a->x.cols, ldx = bf16_ldx(c->a);
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(&c->a->x, m);
        float *to = (float *)c->x + (size_t)m * ldx;
        for (size_t k = 0; k < K; k++) to[k] = f32_of_bf16(bf16_of_f32(x[k]));
        memset(to + K, 0, (ldx - K) * sizeof *to);
    }
}

/* ---- products -------------------------------------------------------------------------- */

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

static inline void bf16_few_products(const bf16_few *a) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    bf16_few_tiles(a);
    _mm_setcsr(before);
}

/* ---- items ----------------------------------------------------------------------------- */

static inline bool bf16_in_place(const fv_tensor *w, int rows) {
    return rows <= BF16_IN_PLACE && w->dtype == FV_BF16 && !w->quant;
}

/* Steps of the current block of K. */
static size_t bf16_steps_of_block(const fv_gemm_item *t) {
    const size_t left = bf16_steps((size_t)t->call->a->x.cols) - t->k * BLOCK_STEPS;
    return left < BLOCK_STEPS ? left : BLOCK_STEPS;
}

static void bf16_pack_w(fv_gemm_item *t, int n, int cols, void *panel) {
    const size_t k0 = t->k * BF16_K, steps = bf16_steps_of_block(t), K = (size_t)t->p->w.cols;
    const ptrdiff_t next = t->last ? (ptrdiff_t)(LANES * K) - (ptrdiff_t)k0 : BF16_K;
    if (steps)
        bf16_panel(&t->p->w, t->n0 + n, cols, k0, steps, next * (ptrdiff_t)sizeof(uint16_t), panel);
}

/* The product of a tile with panels of 16 columns side by side. */
static bf16_product bf16_product_of(const fv_gemm_item *t, int m, int rows, int cols,
                                    const void *panel, void *sums) {
    const int NR_all = t->call->impl->tiles->NR;
    if (t->k == 0) memset(sums, 0, (size_t)(rows * NR_all) * sizeof(float));
    return (bf16_product){.x = (const float *)t->call->x +
                               (size_t)(t->m0 + m) * bf16_ldx(t->call->a) + t->k * BF16_K,
                          .w = panel,
                          .ldx = bf16_ldx(t->call->a),
                          .ldw = BF16_PANEL,
                          .ld_line = LANES,
                          .M = rows,
                          .panels = (int)div_up(cols, LANES),
                          .steps = bf16_steps_of_block(t),
                          .acc = sums,
                          .ld_row = (size_t)NR_all,
                          .ld_panel = LANES};
}

static void bf16_tile_of(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel,
                         void *sums) {
    const bf16_product a = bf16_product_of(t, m, rows, cols, panel, sums);
    (void)n;
    bf16_products(&a);
}

static const fv_gemm_x x_bf16 = {1 << FV_PRODUCT_BF16, pack_x_bf16_plan, pack_x_bf16};

static const fv_gemm_tiles bf16_panels = {
    12,          LANES,        BF16_K,   BF16_PANEL * sizeof(float), sizeof(float), false,
    bf16_pack_w, bf16_tile_of, store_f32};

#ifndef __AVX512BF16__ /* avx512bf16/linear_bf16.c has its own */
static bool takes_in_place(const fv_linear_args *a, const fv_tensor *w) {
    return bf16_in_place(w, a->x.rows);
}

static void bf16_item_in_place(fv_gemm_item *t) {
    const size_t K = (size_t)t->call->a->x.cols;
    float acc[BF16_IN_PLACE * LANES] = {0};
    bf16_few_products(&(bf16_few){.x = t->call->x,
                                  .ldx = bf16_ldx(t->call->a),
                                  .M = t->M,
                                  .rows = t->N,
                                  .w = (const uint16_t *)t->p->w.data + (size_t)t->n0 * K,
                                  .K = K,
                                  .acc = acc,
                                  .ld = LANES});
    for (int m = 0; m < t->M; m++) store_sums(t->p, m, t->n0, t->N, t->bias, acc + m * LANES);
}

static const fv_gemm_impl gemm_bf16_in_place = {.name = "in-place",
                                                .x = &x_bf16,
                                                .rows_max = BF16_IN_PLACE,
                                                .takes = takes_in_place,
                                                .columns = LANES,
                                                .grain = FV_GEMM_STREAM,
                                                .item = bf16_item_in_place};

static const fv_gemm_impl gemm_bf16_few = {.name = "panels-few",
                                           .x = &x_bf16,
                                           .rows_max = BF16_FEW,
                                           .columns = LANES,
                                           .grain = FV_GEMM_STREAM,
                                           .tiles = &bf16_panels};

/* With many rows of x four panels stay in L2. */
static const fv_gemm_impl gemm_bf16 = {
    .name = "panels", .x = &x_bf16, .columns = BF16_PANELS * LANES, .tiles = &bf16_panels};
#endif

#endif
