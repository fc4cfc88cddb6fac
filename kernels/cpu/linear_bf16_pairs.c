/* y = x w^T + bias (+ y) in bf16 with AVX-512 BF16 (pairs_avx512.h). w is read where it lies, and x is laid as
 * words once. Lanes are rows of x (pairs_eights_avx512.h), or, where those would leave most lanes empty, rows
 * of w (pairs_rows_avx512.h). */
#include "kernels/cpu/linear_bf16_pairs.h"

#include <string.h>

#include "kernels/cpu/linear_parts_lanes.h"
#include "kernels/cpu/narrow_avx512.h"
#include "kernels/cpu/pairs_eights_avx512.h"
#include "kernels/cpu/product_bf16.h"

/* AHEAD: steps from what is read in place to what is fetched. */
enum { AHEAD = 16, STEP_BYTES = PAIRS_STEP * sizeof(uint16_t) };

/* Whether lanes are rows of w. */
static bool in_place(const fv_linear_args *a) {
    return a->x.rows <= PAIRS_TOGETHER && a->x.cols % PAIRS_STEP == 0;
}

bool fv_pairs_take(const fv_linear_args *a) {
    if (!fv_bf16_pairs_run_here()) return false;
    for (int i = 0; i < a->n_part; i++)
        if (a->part[i].w.dtype != FV_BF16 || a->part[i].w.quant) return false;
    return true;
}

static size_t steps_along(const fv_linear_args *a) { return bf16_steps((size_t)a->x.cols); }

/* Rows of x that there is room for. */
static size_t rows_laid(const fv_linear_args *a) {
    return (size_t)(in_place(a) ? a->x.rows : (a->x.rows + EIGHT - 1) / EIGHT * EIGHT);
}

static int columns_of(const fv_linear_args *a) { return in_place(a) ? PAIRS_ROWS : EIGHT; }

/* ---- x --------------------------------------------------------------------------------- */

/* An item is a step of all rows. */
fv_cpu_plan fv_pairs_pack_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    const size_t steps = steps_along(a);
    return (fv_cpu_plan){.n_item = (int64_t)steps,
                         .grain = div_up(16384, (int64_t)a->x.rows * PAIRS_STEP + 1),
                         .shared_bytes = rows_laid(a) * steps * PAIRS_WORDS * sizeof(uint32_t)};
}

/* Words of step s of row m; there are none after the last row. */
static __m512i words_at(const fv_tensor *x, int m, size_t s) {
    const size_t k = s * PAIRS_STEP, n = (size_t)x->cols - k;
    if (m >= x->rows) return _mm512_setzero_si512();
    const uint32_t in = n < PAIRS_STEP ? (1u << n) - 1 : ~0u;
    const float *from = row_f32(x, m) + k;
    return pairs_turns_of(narrow(_mm512_maskz_loadu_ps((__mmask16)in, from),
                                 _mm512_maskz_loadu_ps((__mmask16)(in >> 16), from + 16)));
}

void fv_pairs_pack_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    const fv_tensor *x = &b->a->x;
    const size_t steps = steps_along(b->a);
    (void)scratch;
    for (size_t s = (size_t)begin; s < (size_t)end; s++) {
        if (in_place(b->a)) {
            for (int m = 0; m < x->rows; m++)
                _mm512_storeu_si512((uint32_t *)b->x + ((size_t)m * steps + s) * PAIRS_WORDS,
                                    words_at(x, m, s));
            continue;
        }
        for (int m = 0; m < x->rows; m += EIGHT) {
            _Alignas(64) uint32_t words[EIGHT][PAIRS_WORDS];
            for (int i = 0; i < EIGHT; i++) _mm512_store_si512(words[i], words_at(x, m + i, s));
            eights_words(words[0], PAIRS_WORDS,
                         (uint32_t *)b->x + (size_t)m * steps * PAIRS_WORDS + s * EIGHTS_WORDS);
        }
    }
}

/* ---- few rows of x --------------------------------------------------------------------- */

/* From byte `at` of a row to what is read AHEAD steps later: of this row, or of one 16 rows or more further on. */
static ALWAYS_INLINE size_t ahead_of(size_t at, size_t bytes_row) {
    size_t then = at + AHEAD * STEP_BYTES;
    return then / bytes_row * (16 - 1) * bytes_row + AHEAD * STEP_BYTES;
}

/* Sums [mr, 16] of mr rows of x with those of w; mr and `whole`, whether all 16 are there, are constants after
 * inlining. */
static ALWAYS_INLINE void few_sums(const rows_in_place *rows, const uint32_t *x, const int mr,
                                   const bool whole, float *sums) {
    const size_t bytes_row = rows->stride, words = bytes_row / 4;
    __m512 acc[PAIRS_TOGETHER];
    UNROLL for (int i = 0; i < mr; i++) acc[i] = _mm512_setzero_ps();
    for (size_t at = 0; at < bytes_row; at += STEP_BYTES, x += PAIRS_WORDS) {
        const uintptr_t next = (uintptr_t)rows->at + at + ahead_of(at, bytes_row);
        UNROLL for (size_t i = 0; i < 16; i++) {
            _mm_prefetch((const void *)(next + i * bytes_row), _MM_HINT_T1);
        }
        pairs_rows_step(rows, whole, at, x, words, mr, acc);
    }
    UNROLL for (int i = 0; i < mr; i++) _mm512_storeu_ps(sums + i * 16, acc[i]);
}

static ALWAYS_INLINE void few_sums_of(const rows_in_place *rows, const uint32_t *x, const int mr,
                                      float *sums) {
    if (rows->rows == 16)
        few_sums(rows, x, mr, true, sums);
    else
        few_sums(rows, x, mr, false, sums);
}

/* A function of its own, between two settings of MXCSR: nothing of it may move out. */
static NEVER_INLINE void few_products(const rows_in_place *rows, const uint32_t *x, int M,
                                      float *sums) {
    switch (M) {
    case 1: few_sums_of(rows, x, 1, sums); break;
    case 2: few_sums_of(rows, x, 2, sums); break;
    case 3: few_sums_of(rows, x, 3, sums); break;
    default: few_sums_of(rows, x, PAIRS_TOGETHER, sums);
    }
}

/* Columns [n0, n0 + 16) of y, as far as there are. */
static void item_in_place(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0) {
    const size_t bytes_row = (size_t)p->w.cols * sizeof(uint16_t);
    const int M = b->a->x.rows, N = p->w.rows - n0 < 16 ? (int)(p->w.rows - n0) : 16;
    const rows_in_place rows = {(const char *)p->w.data + (size_t)n0 * bytes_row, bytes_row, N};
    float sums[PAIRS_TOGETHER * 16], wide[16];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    few_products(&rows, b->x, M, sums);
    _mm_setcsr(before);
    for (int m = 0; m < M; m++) store_sums(p, m, n0, N, bias, sums + m * 16);
}

/* ---- more rows ------------------------------------------------------------------------- */

/* A function of its own, as few_products(). */
static NEVER_INLINE void eights_products(const eights_tile *t, int eights, float *sums) {
    if (eights == 1)
        eights_multiply(t, 1, sums);
    else
        eights_multiply(t, 2, sums);
}

/* Columns [n0, n0 + 8) of y, as far as there are. */
static void item_of_eights(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0) {
    const size_t K = (size_t)p->w.cols, bytes_row = K * sizeof(uint16_t);
    const size_t steps = steps_along(b->a);
    const int M = b->a->x.rows, N = p->w.rows - n0 < EIGHT ? (int)(p->w.rows - n0) : EIGHT;
    const char *at = (const char *)p->w.data + (size_t)n0 * bytes_row;
    float sums[2 * EIGHT * EIGHT], wide[EIGHT];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    eights_tile t = {.x = b->x,
                     .ldx = steps * EIGHTS_WORDS,
                     .steps = steps,
                     .last = K % PAIRS_STEP ? (1u << K % PAIRS_STEP) - 1 : ~0u,
                     .ahead = at + EIGHT * bytes_row,
                     .each = M <= 2 * EIGHT ? 64 : 32};
    for (int i = 0; i < EIGHT; i++) t.row[i] = at + (size_t)(i < N ? i : N - 1) * bytes_row;
    for (int m = 0; m < M; m += 2 * EIGHT) {
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
        eights_products(&t, M - m > EIGHT ? 2 : 1, sums);
        _mm_setcsr(before);
        for (int i = 0; i < 2 * EIGHT && m + i < M; i++)
            store_sums(p, m + i, n0, N, bias, sums + i * EIGHT);
        t.x += 2 * t.ldx;
        t.ahead += EIGHT * bytes_row / 2;
        if (m >= 2 * EIGHT) t.each = 0;
    }
}

/* ---- items ----------------------------------------------------------------------------- */

fv_cpu_plan fv_pairs_linear_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    const int columns = columns_of(a);
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += div_up(a->part[p].w.rows, columns);
    plan.grain = div_up(1 << 18, (int64_t)columns * (a->x.cols + 1));
    return plan;
}

void fv_pairs_linear_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    const int columns = columns_of(b->a);
    (void)scratch;
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t n = div_up(b->a->part[p].w.rows, columns);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            if (in_place(b->a))
                item_in_place(b, &b->a->part[p], i * columns);
            else
                item_of_eights(b, &b->a->part[p], i * columns);
        begin -= n;
        end -= n;
    }
}
