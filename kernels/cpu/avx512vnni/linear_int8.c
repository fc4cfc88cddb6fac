/* y = x w^T + bias (+ y) with weights in int8 and a scale for each row, with AVX-512 VNNI. Sums are
 * integers, the same in any order; VPDPBUSD's first operand is unsigned, so w is raised by 128, and 128 times
 * the sum of the row of x is subtracted. Sums may wrap around on the way: the result fits.
 *
 * Few rows of x: w is streamed once, in place; a sum is spread over 16 lanes. With one or two rows of x, rows of
 * w are read one after the other, which hardware prefetchers follow; with more, several at a time, so that each
 * load of x is used several times.
 * Many rows: lanes are rows of w, packed as quads (avx512vnni/panels.h) and multiplied by strips of rows of x, which
 * are interleaved by quads. Packing a panel costs as much as multiplying a few rows of x. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/avx512vnni/gemm.h"
#include "kernels/cpu/avx512vnni/panels.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

/* COLUMNS: columns of y per item. FEW: up to 16 rows of x, reading w in place is faster. STEP: a register of a
 * row. STRIP: rows of x multiplied by two panels at a time, in 24 registers. BLOCK: columns of a block of K, so
 * that two panels, 16 KiB, stay in L1. */
enum {
    COLUMNS = 64,
    FEW = 16,
    STEP = 64,
    STRIP = 12,
    BLOCK = 512,
    PANEL = BLOCK / 4,
    PAIR = 2 * LANES
};

static bool is_few(const fv_linear_args *a) { return a->x.rows <= FEW; }

/* Bytes of a row of x, padded with zeros. */
static size_t row_bytes(const fv_linear_args *a) {
    return ((size_t)a->x.cols + STEP - 1) / STEP * STEP;
}

/* ---- x --------------------------------------------------------------------------------- */

/* Rows of the strip from m0 on in packed x: the last strip may have fewer, a multiple of 4. */
static int strip_rows(int M, int m0) { return min_int(STRIP, (M - m0 + 3) / 4 * 4); }

static fv_cpu_plan pack_x_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    int rows = is_few(a) ? 1 : STRIP;
    fv_cpu_plan plan = {.n_item = div_up(a->x.rows, rows)};
    plan.grain = div_up(16384, (int64_t)rows * (a->x.cols + 1));
    plan.shared_bytes = int8_x_head(a->x.rows) + ((size_t)a->x.rows + 3) * row_bytes(a);
    return plan;
}

/* Packs a row of x with its quads `rows` quads apart; returns its sum. */
static int32_t pack_row(const float *x, size_t K, float by, size_t ldx, size_t rows, int8_t *to) {
    __m512i sum = _mm512_setzero_si512();
    for (size_t k = 0; k < ldx; k += STEP, to += STEP * rows) {
        int8_t codes[STEP] = {0};
        int8_codes(x + k, K - k < STEP ? K - k : STEP, by, codes);
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(codes));
        for (size_t q = 0; q < STEP / 4; q++) memcpy(to + 4 * q * rows, codes + 4 * q, 4);
    }
    return _mm512_reduce_add_epi32(sum);
}

static void pack_x(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    const fv_tensor *x = &b->a->x;
    int8_x to = int8_x_at(b->x, x->rows);
    size_t K = (size_t)x->cols, ldx = row_bytes(b->a);
    int strip = is_few(b->a) ? 1 : STRIP;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        int m0 = (int)i * strip, rows = strip == 1 ? 1 : strip_rows(x->rows, m0);
        for (int j = 0; j < rows; j++) {
            int8_t *codes = to.codes + (size_t)m0 * ldx + (size_t)j * 4;
            if (m0 + j >= x->rows) {
                for (size_t k = 0; k < ldx; k += 4) memset(codes + k * (size_t)rows, 0, 4);
                continue;
            }
            const float *from = row_f32(x, m0 + j);
            float by;
            to.scale[m0 + j] = int8_scale(from, K, &by);
            to.sum[m0 + j] = pack_row(from, K, by, ldx, (size_t)rows, codes);
        }
    }
}

/* ---- few rows of x --------------------------------------------------------------------- */

/* Columns [n0, n0 + N) of y and all rows of x. */
typedef struct work {
    const int8_t *x, *w; /* [M, ldx] or strips; [N, K] without gaps, nothing after it is read */
    size_t K, ldx;
    int M, N;
    int32_t *sums; /* [M, COLUMNS], initially -128 times the sum of the row of x */
} work;

/* Sums the lanes of each of four registers. */
static ALWAYS_INLINE __m128i four_sums(__m512i a, __m512i b, __m512i c, __m512i d) {
    __m512i all = sums_of_quarters(a, b, c, d);
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Adds a step of nr rows of w, at w[0 .. nr), and mr rows of x to acc. */
static ALWAYS_INLINE void few_step(const int8_t *const *w, size_t k, __mmask64 in, const int8_t *x,
                                   size_t ldx, __m512i *acc, const int mr, const int nr) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i xk[4];
    UNROLL for (int i = 0; i < mr; i++) xk[i] = _mm512_loadu_si512(x + (size_t)i * ldx + k);
    UNROLL for (int j = 0; j < nr; j++) {
        __m512i wk = _mm512_xor_si512(_mm512_maskz_loadu_epi8(in, w[j] + k), flip);
        UNROLL for (int i = 0; i < mr; i++) {
            acc[i * nr + j] = _mm512_dpbusd_epi32(acc[i * nr + j], wk, xk[i]);
        }
    }
}

/* Sums of mr rows of x from m on and nr rows of w from n on; missing rows of w repeat the last one. */
static ALWAYS_INLINE void few_tile(const work *t, int m, int n, const int mr, const int nr) {
    const int8_t *x = t->x + (size_t)m * t->ldx, *w[8];
    const size_t whole = t->K / STEP * STEP, ahead = (size_t)nr * t->K;
    __m512i acc[24];
    int32_t out[24];
    UNROLL for (int j = 0; j < nr; j++) { w[j] = t->w + (size_t)min_int(n + j, t->N - 1) * t->K; }
    UNROLL for (int i = 0; i < mr * nr; i++) acc[i] = _mm512_setzero_si512();
    for (size_t k = 0; k < whole; k += STEP) {
        if (m == 0) {
            /* twice, because a core drops prefetches while its fill buffers are full */
            UNROLL for (int j = 0; j < nr; j++) {
                _mm_prefetch((const void *)((uintptr_t)w[j] + 2 * ahead + k), _MM_HINT_T1);
                _mm_prefetch((const void *)((uintptr_t)w[j] + ahead + k), _MM_HINT_T1);
            }
        }
        few_step(w, k, ~(__mmask64)0, x, t->ldx, acc, mr, nr);
    }
    if (whole < t->K)
        few_step(w, whole, ((__mmask64)1 << (t->K - whole)) - 1, x, t->ldx, acc, mr, nr);
    UNROLL for (int i = 0; i < mr * nr; i += 4) {
        _mm_storeu_si128((void *)(out + i), four_sums(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]));
    }
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < nr && n + j < t->N; j++)
            t->sums[(m + i) * COLUMNS + n + j] += out[i * nr + j];
}

/* Sums of row n of w and mr rows of x, one or two. */
static ALWAYS_INLINE void few_row(const work *t, int n, const int mr) {
    const size_t whole = t->K / (2 * STEP) * 2 * STEP;
    const int8_t *w = t->w + (size_t)n * t->K;
    const __m512i none = _mm512_setzero_si512();
    __m512i acc[2][2]; /* even and odd steps apart, so that neither waits for the other */
    int32_t out[4];
    UNROLL for (int j = 0; j < 2; j++) acc[j][0] = acc[j][1] = none;
    for (size_t k = 0; k < whole; k += 2 * STEP) {
        UNROLL for (int j = 0; j < 2; j++) {
            few_step(&w, k + (size_t)j * STEP, ~(__mmask64)0, t->x, t->ldx, acc[j], mr, 1);
        }
    }
    for (size_t k = whole; k < t->K; k += STEP) {
        const size_t left = t->K - k;
        const __mmask64 in = left < STEP ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0;
        few_step(&w, k, in, t->x, t->ldx, acc[0], mr, 1);
    }
    UNROLL for (int i = 0; i < 2; i++) acc[0][i] = _mm512_add_epi32(acc[0][i], acc[1][i]);
    _mm_storeu_si128((void *)out, four_sums(acc[0][0], acc[0][1], none, none));
    for (int i = 0; i < mr; i++) t->sums[i * COLUMNS + n] += out[i];
}

static NEVER_INLINE void few_1(const work *t, int m, int n) { few_tile(t, m, n, 1, 8); }
static NEVER_INLINE void few_2(const work *t, int m, int n) { few_tile(t, m, n, 2, 8); }
static NEVER_INLINE void few_3(const work *t, int m, int n) { few_tile(t, m, n, 3, 4); }
static NEVER_INLINE void few_4(const work *t, int m, int n) { few_tile(t, m, n, 4, 4); }

static void few_products(const work *t) {
    static void (*const tile[])(const work *, int, int) = {few_1, few_2, few_3, few_4};
    for (int n = 0; t->M == 1 && n < t->N; n++) few_row(t, n, 1);
    for (int n = 0; t->M == 2 && n < t->N; n++) few_row(t, n, 2);
    if (t->M <= 2) return;
    for (int n = 0; n < t->N; n += 8)
        for (int m = 0; m < t->M; m += 4) {
            int rows = min_int(4, t->M - m);
            tile[rows - 1](t, m, n);
            if (rows > 2 && n + 4 < t->N) tile[rows - 1](t, m, n + 4);
        }
}

/* An item of few rows of x. */
static void item_in_place(fv_gemm_item *t) {
    const fv_gemm_call *c = t->call;
    const int8_x x = int8_x_at(c->x, t->M);
    const size_t K = (size_t)c->a->x.cols;
    int32_t sums[FEW * COLUMNS];
    for (int m = 0; m < t->M; m++)
        for (int j = 0; j < COLUMNS; j++) sums[m * COLUMNS + j] = -128 * x.sum[m];
    few_products(&(work){.x = x.codes,
                         .w = (const int8_t *)t->p->w.data + (size_t)t->n0 * K,
                         .K = K,
                         .ldx = row_bytes(c->a),
                         .M = t->M,
                         .N = t->N,
                         .sums = sums});
    for (int m = 0; m < t->M; m++)
        store_int8_sums(t->p, m, x.scale[m], t->n0, t->N, t->bias, sums + m * COLUMNS);
}

static const fv_gemm_x x_int8 = {1 << FV_PRODUCT_INT8, pack_x_plan, pack_x};

const fv_gemm_impl fv_avx512vnni_int8_few = {.name = "in-place",
                                             .x = &x_int8,
                                             .rows_max = FEW,
                                             .columns = COLUMNS,
                                             .grain = FV_GEMM_STREAM,
                                             .item = item_in_place};

/* ---- many rows of x -------------------------------------------------------------------- */

/* Quads of the current block of K. */
static size_t quads_of_block(const fv_gemm_item *t) {
    const size_t left = row_bytes(t->call->a) - t->k * BLOCK;
    return (left < BLOCK ? left : BLOCK) / 4;
}

/* Packs 16 rows of w, `rows` of which exist, from column k0 on. */
static void pack_rows(const fv_tensor *w, int64_t n0, int rows, size_t k0, size_t quads,
                      __m512i *to) {
    const size_t K = (size_t)w->cols;
    for (size_t q = 0; q < quads; q += QUADS, to += QUADS) {
        size_t k = k0 + 4 * q, left = k < K ? K - k : 0;
        const uint8_t *at = (const uint8_t *)w->data + (size_t)n0 * K + k;
        if (rows == LANES && left >= INT8_GROUP)
            quads_of(at, K, false, to);
        else
            edge_of(at, K, rows, left < INT8_GROUP ? left : INT8_GROUP, false, to);
    }
}

static void pack_w(fv_gemm_item *t, int n, int cols, void *panel) {
    const size_t k0 = t->k * BLOCK, quads = quads_of_block(t);
    __m512i *to = panel;
    pack_rows(&t->p->w, t->n0 + n, min_int(LANES, cols), k0, quads, to);
    if (cols > LANES) pack_rows(&t->p->w, t->n0 + n + LANES, cols - LANES, k0, quads, to + PANEL);
}

/* Adds two panels times a strip of mr rows of x to sums [mr, PAIR]. */
static ALWAYS_INLINE void many_tile(const __m512i *w0, const __m512i *w1, size_t quads,
                                    const int32_t *x, int32_t *sums, const int mr) {
    __m512i acc[2 * STRIP];
    UNROLL for (int i = 0; i < mr; i++) {
        acc[2 * i] = _mm512_loadu_si512(sums + i * PAIR);
        acc[2 * i + 1] = _mm512_loadu_si512(sums + i * PAIR + LANES);
    }
    for (size_t q = 0; q < quads; q++, x += mr) {
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i all = _mm512_set1_epi32(x[i]);
            acc[2 * i] = _mm512_dpbusd_epi32(acc[2 * i], w0[q], all);
            acc[2 * i + 1] = _mm512_dpbusd_epi32(acc[2 * i + 1], w1[q], all);
        }
    }
    UNROLL for (int i = 0; i < mr; i++) {
        _mm512_storeu_si512(sums + i * PAIR, acc[2 * i]);
        _mm512_storeu_si512(sums + i * PAIR + LANES, acc[2 * i + 1]);
    }
}

static NEVER_INLINE void many_4(const __m512i *w, size_t quads, const int32_t *x, int32_t *sums) {
    many_tile(w, w + PANEL, quads, x, sums, 4);
}
static NEVER_INLINE void many_8(const __m512i *w, size_t quads, const int32_t *x, int32_t *sums) {
    many_tile(w, w + PANEL, quads, x, sums, 8);
}
static NEVER_INLINE void many_12(const __m512i *w, size_t quads, const int32_t *x, int32_t *sums) {
    many_tile(w, w + PANEL, quads, x, sums, STRIP);
}

static void tile(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel, void *sums) {
    const int8_x x = int8_x_at(t->call->x, t->M);
    const int strip = strip_rows(t->M, m);
    const int8_t *at = x.codes + (size_t)m * row_bytes(t->call->a) + t->k * BLOCK * (size_t)strip;
    int32_t *to = sums;
    (void)n, (void)cols;
    if (t->k == 0) {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < PAIR; j++) to[i * PAIR + j] = -128 * x.sum[m + i];
        memset(to + rows * PAIR, 0, (size_t)((strip - rows) * PAIR) * sizeof *to);
    }
    (strip == 4   ? many_4
     : strip == 8 ? many_8
                  : many_12)(panel, quads_of_block(t), (const int32_t *)(const void *)at, to);
}

static void store(const fv_gemm_item *t, int m, int rows, int n, int cols, const void *sums) {
    const float *bias = t->bias ? t->bias + n : NULL, *scale = int8_x_at(t->call->x, t->M).scale;
    for (int i = 0; i < rows; i++)
        store_int8_sums(t->p, m + i, scale[m + i], t->n0 + n, cols, bias,
                        (const int32_t *)sums + i * PAIR);
}

static const fv_gemm_tiles tiles = {
    STRIP, PAIR, BLOCK, 2 * PANEL * sizeof(__m512i), sizeof(int32_t), true, pack_w, tile, store};

const fv_gemm_impl fv_avx512vnni_int8 = {
    .name = "panels", .x = &x_int8, .columns = COLUMNS, .tiles = &tiles};
