/* y = x w^T + bias (+ y) in bf16 with AVX-512 BF16 (avx512bf16/words.h). Weights in bf16 are read in place, eight rows
 * at a time, and x is packed as words once (avx512bf16/eight_rows.h). With few rows of x, eight rows of integers are
 * decoded first, to memory that stays in L2, and those in E4M3 in registers. Other weights become panels of f32 as without AVX-512 BF16, and these are
 * packed once more as words. */
#include "kernels/cpu/lanes/linear_bf16.h"
#include "kernels/cpu/avx512bf16/eight_rows.h"
#include "kernels/cpu/avx512bf16/eight_rows_e4m3.h"
#include "kernels/cpu/avx512bf16/narrow.h"
#include "kernels/cpu/avx512bf16/products.h"

static bool is_few(const fv_linear_args *a) { return a->x.rows <= EIGHT_ROWS_FEW; }

static bool takes(const fv_linear_args *a, const fv_tensor *w) {
    (void)a;
    return w->dtype == FV_BF16 && !w->quant;
}

static size_t steps_along(const fv_linear_args *a) { return bf16_steps((size_t)a->x.cols); }

/* Rows of packed x: whole eights, except for few rows. */
static size_t rows_laid(const fv_linear_args *a) {
    return (size_t)(is_few(a) ? a->x.rows : (a->x.rows + EIGHT - 1) / EIGHT * EIGHT);
}

/* ---- x --------------------------------------------------------------------------------- */

/* An item packs one step of all rows. */
static fv_cpu_plan pack_x_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    const size_t steps = steps_along(a);
    return (fv_cpu_plan){.n_item = (int64_t)steps,
                         .grain = div_up(16384, (int64_t)a->x.rows * WORDS_STEP + 1),
                         .shared_bytes = rows_laid(a) * steps * STEP_WORDS * sizeof(uint32_t)};
}

/* Words of step s of row m; zeros after the last row. */
static __m512i words_at(const fv_tensor *x, int m, size_t s) {
    const size_t k = s * WORDS_STEP, n = (size_t)x->cols - k;
    if (m >= x->rows) return _mm512_setzero_si512();
    const uint32_t in = n < WORDS_STEP ? (1u << n) - 1 : ~0u;
    const float *from = row_f32(x, m) + k;
    return alternating_words_of(narrow(_mm512_maskz_loadu_ps((__mmask16)in, from),
                                       _mm512_maskz_loadu_ps((__mmask16)(in >> 16), from + 16)));
}

static void pack_x(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    const fv_tensor *x = &b->a->x;
    const size_t steps = steps_along(b->a);
    (void)scratch;
    for (size_t s = (size_t)begin; s < (size_t)end; s++) {
        if (is_few(b->a)) {
            for (int m = 0; m < x->rows; m++)
                _mm512_store_si512((uint32_t *)b->x + ((size_t)m * steps + s) * STEP_WORDS,
                                   words_at(x, m, s));
            continue;
        }
        for (int m = 0; m < x->rows; m += EIGHT) {
            uint32_t *to = (uint32_t *)b->x + (size_t)m * steps * STEP_WORDS + s * EIGHT_ROWS_WORDS;
            __m512i of[EIGHT];
            UNROLL for (int i = 0; i < EIGHT; i++) of[i] = words_at(x, m + i, s);
            eight_rows_transpose(of);
            UNROLL for (int i = 0; i < EIGHT; i++) _mm512_store_si512(to + i * 16, of[i]);
        }
    }
}

/* ---- products -------------------------------------------------------------------------- */

static ALWAYS_INLINE void products_of(const eight_rows_tile *t, int M, const eight_rows_place place,
                                      float *sums) {
    switch (M) {
    case 1: eight_rows_few(t, 1, place, sums); break;
    case EIGHT_ROWS_FEW: eight_rows_few(t, EIGHT_ROWS_FEW, place, sums); break;
    default: eight_rows_many(t, 1, place, sums);
    }
}

/* Sums of M rows of x, few or whole eights. Not inlined: the compiler must not move its arithmetic across the
 * caller's changes of MXCSR. */
static NEVER_INLINE void products(const eight_rows_tile *t, int M, float *sums) {
    const bool whole = t->last == ~0u;
    if (M > EIGHT && whole)
        eight_rows_many(t, 2, EIGHT_ROWS_WHOLE, sums);
    else if (M > EIGHT)
        eight_rows_many(t, 2, EIGHT_ROWS_PART, sums);
    else if (t->behind)
        products_of(t, M, EIGHT_ROWS_ACROSS, sums);
    else if (whole)
        products_of(t, M, EIGHT_ROWS_WHOLE, sums);
    else
        products_of(t, M, EIGHT_ROWS_PART, sums);
}

/* Stores sums [M, 8] in those of columns [n0, n0 + 8) of y that are in the mask `in`; bias [8] or NULL. */
static void store_eights(const fv_linear_part *p, int m, int M, int64_t n0, __mmask8 in,
                         const float *bias, const float *sums) {
    const __m256 more = bias ? _mm256_loadu_ps(bias) : _mm256_setzero_ps();
    for (int i = 0; i < M; i++) {
        float *y = row_f32(&p->y, m + i) + n0;
        __m256 sum = _mm256_loadu_ps(sums + i * EIGHT);
        if (bias) sum = _mm256_add_ps(sum, more);
        if (p->accumulate) sum = _mm256_add_ps(sum, _mm256_maskz_loadu_ps(in, y));
        _mm256_mask_storeu_ps(y, in, sum);
    }
}

/* Mask of the first n < 32 numbers; n = 0: of all 32. */
static __mmask32 numbers_of(size_t n) { return n ? (1u << n) - 1 : ~0u; }

static eight_rows_tile tile_of(const fv_gemm_call *c) {
    const size_t steps = steps_along(c->a), K = (size_t)c->a->x.cols;
    return (eight_rows_tile){.x = c->x,
                             .ldx = steps * (is_few(c->a) ? STEP_WORDS : EIGHT_ROWS_WORDS),
                             .steps = steps,
                             .last = K == 0 ? 0 : numbers_of(K % WORDS_STEP)};
}

/* Multiplies all rows of x by the eight rows of the tile; prefetches `ahead` bytes with each of x's sixteen. */
static void multiply_rows(fv_gemm_item *of, eight_rows_tile t, size_t ahead) {
    const bool few = is_few(of->call->a);
    const int M = of->M, N = of->N;
    float sums[2 * EIGHT * EIGHT], bias[EIGHT] = {0};
    for (int i = 0; of->bias && i < N; i++) bias[i] = of->bias[i];
    for (int m = 0; m < M; m += 2 * EIGHT) {
        const int left = M - m < 2 * EIGHT ? M - m : 2 * EIGHT;
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
        products(&t, few ? M : (left + EIGHT - 1) / EIGHT * EIGHT, sums);
        _mm_setcsr(before);
        store_eights(of->p, m, left, of->n0, (__mmask8)((1u << N) - 1), of->bias ? bias : NULL,
                     sums);
        t.x += 2 * t.ldx;
        t.ahead += ahead;
        if (m >= 2 * EIGHT) t.each = 0;
    }
}

static void item(fv_gemm_item *of) {
    const fv_linear_part *p = of->p;
    const size_t K = (size_t)p->w.cols, bytes_row = K * sizeof(uint16_t);
    const int M = of->M, N = of->N;
    const char *at = (const char *)p->w.data + (size_t)of->n0 * bytes_row;
    eight_rows_tile t = tile_of(of->call);
    t.ahead = at + EIGHT * bytes_row;
    t.each = M <= 2 * EIGHT ? 64 : 32;
    if (M <= EIGHT && K > 0 && K % WORDS_STEP == 0) { /* with more rows sums need the registers */
        t.behind = (uintptr_t)at % 64 / sizeof(uint16_t);
        t.last = numbers_of(t.behind);
    }
    for (int i = 0; i < EIGHT; i++)
        t.row[i] = at + (size_t)(i < N ? i : N - 1) * bytes_row - t.behind * sizeof(uint16_t);
    multiply_rows(of, t, EIGHT * bytes_row / 2);
}

static const fv_gemm_x x_words = {1 << FV_PRODUCT_BF16, pack_x_plan, pack_x};

const fv_gemm_impl fv_avx512bf16_in_place = {.name = "in-place",
                                             .x = &x_words,
                                             .takes = takes,
                                             .columns = EIGHT,
                                             .grain = FV_GEMM_STREAM,
                                             .item = item};

/* ---- integers, few rows of x -------------------------------------------------------------- */

enum { DECODED_ROWS = BF16_WORDS - 1 }; /* from there on, panels are read often enough to pay off */

static bool takes_integers(const fv_linear_args *a, const fv_tensor *w) {
    (void)a;
    return w->quant != NULL;
}

/* Numbers of a decoded row: whole blocks of K. */
static size_t decoded_numbers(const fv_linear_args *a) {
    return ((size_t)a->x.cols + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS * BLOCK_COLUMNS;
}

static size_t decoded_bytes(const fv_linear_args *a) {
    return EIGHT * decoded_numbers(a) * sizeof(uint16_t);
}

/* Decodes N rows of w from n0 on, ld numbers apart. */
static ALWAYS_INLINE void decode_eight_of(const fv_tensor *w, int64_t n0, int N, const int scales,
                                          size_t ld, uint16_t *to) {
    const fv_quant quant =
        *w->quant; /* a copy, so that the compiler knows that stores do not change it */
    fv_tensor own = *w;
    own.quant = &quant;
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k * BLOCK_COLUMNS < (size_t)w->cols; k++)
            quantized_block(&own, n0 + i, k, scales, to + (size_t)i * ld + k * BLOCK_COLUMNS,
                            BF16_STEP);
}

static void decode_eight(const fv_tensor *w, int64_t n0, int N, size_t ld, uint16_t *to) {
    switch (int4_scales(w)) {
    case BLOCK_COLUMNS / 32: decode_eight_of(w, n0, N, BLOCK_COLUMNS / 32, ld, to); return;
    case BLOCK_COLUMNS / 128: decode_eight_of(w, n0, N, BLOCK_COLUMNS / 128, ld, to); return;
    default: decode_eight_of(w, n0, N, 0, ld, to);
    }
}

static void item_decoded(fv_gemm_item *of) {
    const size_t ld = decoded_numbers(of->call->a);
    uint16_t *rows = (uint16_t *)(void *)of->scratch;
    eight_rows_tile t = tile_of(of->call);
    decode_eight(&of->p->w, of->n0, of->N, ld, rows);
    if (t.steps) t.last = ~0u; /* a decoded row goes on with zeros */
    for (int i = 0; i < EIGHT; i++)
        t.row[i] = (const char *)(rows + (size_t)(i < of->N ? i : of->N - 1) * ld);
    t.ahead = (const char *)rows;
    multiply_rows(of, t, 0);
}

const fv_gemm_impl fv_avx512bf16_decoded = {.name = "decoded-few",
                                            .x = &x_words,
                                            .rows_max = DECODED_ROWS,
                                            .takes = takes_integers,
                                            .columns = EIGHT,
                                            .grain = FV_GEMM_STREAM,
                                            .scratch_bytes = decoded_bytes,
                                            .item = item_decoded};

/* ---- E4M3, one or two rows of x ------------------------------------------------------------- */

static bool takes_e4m3(const fv_linear_args *a, const fv_tensor *w) {
    const fv_quant *q = w->quant;
    return q && q->table == fv_e4m3 && !q->min && q->group % WORDS_STEP == 0 && a->x.cols > 0;
}

/* Writes 2^8 times the scales of N rows from n0 on, those of missing rows as of the last. Returns false where a
 * product with one might not be a normal number. */
static bool scales_by(const fv_tensor *w, int64_t n0, int N, float *by) {
    const fv_quant *q = w->quant;
    const size_t groups = (size_t)q->groups;
    bool normal = true;
    for (int i = 0; i < EIGHT; i++)
        for (size_t g = 0; g < groups; g++) {
            const size_t row = (size_t)n0 + (size_t)(i < N ? i : N - 1);
            const float scale = widened(q->scale, q->scale_type, row * groups + g);
            normal = normal && fabsf(scale) > 0x1p-116f && fabsf(scale) < 0x1p100f;
            *by++ = scale * 0x1p8f;
        }
    return normal;
}

/* Not inlined, as products(). */
static NEVER_INLINE bool products_e4m3(const eight_rows_codes *t, int M, float *sums) {
    return M == 1 ? eight_rows_e4m3(t, 1, sums) : eight_rows_e4m3(t, EIGHT_ROWS_FEW, sums);
}

static void item_e4m3(fv_gemm_item *of) {
    const fv_tensor *w = &of->p->w;
    const fv_quant *q = w->quant;
    const eight_rows_tile tile = tile_of(of->call);
    float *by = (float *)(void *)of->scratch, sums[EIGHT_ROWS_FEW * EIGHT], bias[EIGHT] = {0};
    eight_rows_codes t = {.by = by,
                          .groups = (size_t)q->groups,
                          .per = (size_t)q->group / WORDS_STEP,
                          .x = tile.x,
                          .ldx = tile.ldx,
                          .steps = tile.steps,
                          .last = tile.last,
                          .ahead = EIGHT * q->row_bytes};
    bool exact = scales_by(w, of->n0, of->N, by);
    for (int i = 0; i < EIGHT; i++)
        t.row[i] =
            (const char *)w->data + (size_t)(of->n0 + (i < of->N ? i : of->N - 1)) * q->row_bytes;
    if (exact) {
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
        exact = products_e4m3(&t, of->M, sums);
        _mm_setcsr(before);
    }
    if (!exact) {
        item_decoded(of);
        return;
    }
    for (int i = 0; of->bias && i < of->N; i++) bias[i] = of->bias[i];
    store_eights(of->p, 0, of->M, of->n0, (__mmask8)((1u << of->N) - 1), of->bias ? bias : NULL,
                 sums);
}

const fv_gemm_impl fv_avx512bf16_e4m3 = {.name = "e4m3-few",
                                         .x = &x_words,
                                         .rows_max = EIGHT_ROWS_FEW,
                                         .takes = takes_e4m3,
                                         .columns = EIGHT,
                                         .grain = FV_GEMM_STREAM,
                                         .scratch_bytes = decoded_bytes,
                                         .item = item_e4m3};

/* ---- weights of another type ------------------------------------------------------------ */

static bool takes_many(const fv_linear_args *a, const fv_tensor *w) {
    (void)w;
    return a->x.rows >= BF16_WORDS;
}

static void pack_panels(fv_gemm_item *t, int n, int cols, void *panel) {
    for (float *to = panel; cols > 0; n += LANES, cols -= LANES, to += BF16_PANEL)
        bf16_pack_w(t, n, min_int(LANES, cols), to);
}

static void tile(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel, void *sums) {
    const bf16_product a = bf16_product_of(t, m, rows, cols, panel, sums);
    (void)n;
    fv_avx512bf16_packed_products.multiply(&a);
}

/* Panels become words once for the rows of a tile. */
static const fv_gemm_tiles one_panel = {
    BF16_FEW,    LANES, BF16_K,   BF16_PANEL * sizeof(float), sizeof(float), true,
    pack_panels, tile,  store_f32};

static const fv_gemm_tiles four_panels = {192,           BF16_PANELS *LANES,
                                          BF16_K,        BF16_PANELS *BF16_PANEL * sizeof(float),
                                          sizeof(float), true,
                                          pack_panels,   tile,
                                          store_f32};

const fv_gemm_impl fv_avx512bf16_panels_few = {.name = "panels-few",
                                               .x = &x_bf16,
                                               .rows_max = BF16_FEW,
                                               .takes = takes_many,
                                               .columns = LANES,
                                               .grain = FV_GEMM_STREAM,
                                               .tiles = &one_panel};

const fv_gemm_impl fv_avx512bf16_panels = {.name = "panels",
                                           .x = &x_bf16,
                                           .takes = takes_many,
                                           .columns = BF16_PANELS * LANES,
                                           .tiles = &four_panels};
