/* y = x w^T + bias (+ y) in bf16 with AVX-512 BF16 (pairs_avx512.h). Lanes are rows of w: a step of 16 rows
 * is transposed into words, without being widened. Rows of x are laid as words once. Up to four rows of x
 * meet w where it lies (pairs_rows_avx512.h). */
#include "kernels/cpu/linear_bf16_pairs.h"

#include <string.h>

#include "kernels/cpu/linear_parts_lanes.h"
#include "kernels/cpu/narrow_avx512.h"
#include "kernels/cpu/pairs_rows_avx512.h"
#include "kernels/cpu/product_bf16.h"

/* Up to FEW rows of x meet a panel of w alone, so that threads have more items. STEPS: of w's words at a time,
 * 16 KiB of four panels. AHEAD: steps from what is read in place to what is fetched. */
enum { FEW = 16, STEPS = 4, AHEAD = 16, STEP_BYTES = PAIRS_STEP * sizeof(uint16_t) };

/* Whether x meets w where it lies. */
static bool in_place(const fv_linear_args *a) { return a->x.rows <= PAIRS_TOGETHER; }

bool fv_pairs_take(const fv_linear_args *a) {
    if (in_place(a) && a->x.cols % PAIRS_STEP != 0) return false;
    if (!fv_bf16_pairs_run_here()) return false;
    for (int i = 0; i < a->n_part; i++)
        if (a->part[i].w.dtype != FV_BF16 || a->part[i].w.quant) return false;
    return true;
}

static size_t steps_along(const fv_linear_args *a) { return bf16_steps((size_t)a->x.cols); }

static int panels_of(const fv_linear_args *a) { return a->x.rows <= FEW ? 1 : PAIRS_PANELS; }

/* ---- x --------------------------------------------------------------------------------- */

fv_cpu_plan fv_pairs_pack_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    size_t words = steps_along(a) * PAIRS_WORDS;
    return (fv_cpu_plan){.n_item = a->x.rows,
                         .grain = div_up(16384, (int64_t)(2 * words) + 1),
                         .shared_bytes = (size_t)a->x.rows * words * sizeof(uint32_t)};
}

void fv_pairs_pack_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    size_t K = (size_t)b->a->x.cols, steps = steps_along(b->a);
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(&b->a->x, m);
        uint32_t *to = (uint32_t *)b->x + (size_t)m * steps * PAIRS_WORDS;
        for (size_t k = 0; k < K; k += PAIRS_STEP, to += PAIRS_WORDS) {
            uint32_t in = K - k < PAIRS_STEP ? (1u << (K - k)) - 1 : ~0u;
            __m512 lo = _mm512_maskz_loadu_ps((__mmask16)in, x + k);
            __m512 hi = _mm512_maskz_loadu_ps((__mmask16)(in >> 16), x + k + 16);
            _mm512_storeu_si512(to, b->a->x.rows > PAIRS_TOGETHER ? pairs_row_words(narrow(lo, hi))
                                                                  : pairs_turns_of(narrow(lo, hi)));
        }
    }
}

/* ---- w --------------------------------------------------------------------------------- */

/* A step of 16 rows, `stride` bytes apart; each word is `ld` numbers after the one before. */
static void step_words(const char *rows, size_t stride, uint32_t *to, size_t ld) {
    const __mmask32 upper = 0xaaaaaaaa;
    __m512i r[16];
    UNROLL for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(rows + (size_t)i * stride);
    i32x16_transpose(r);
    UNROLL for (int i = 0; i < 16; i += 2, to += 2 * ld) {
        __m512i even = _mm512_slli_epi32(r[i], 16), odd = _mm512_srli_epi32(r[i + 1], 16);
        _mm512_store_si512(to, _mm512_mask_blend_epi16(upper, r[i + 1], even));
        _mm512_store_si512(to + ld, _mm512_mask_blend_epi16(upper, odd, r[i]));
    }
}

/* Steps from column k on of up to 16 rows from n0 on, as panel p of n; `next` in bytes is how far what is
 * wanted then lies from what is read now. */
static void panel_words(const fv_tensor *w, int64_t n0, size_t k, size_t steps, ptrdiff_t next,
                        uint32_t *to, size_t n) {
    size_t K = (size_t)w->cols, stride = K * sizeof(uint16_t), ld = n * 16;
    int rows = w->rows - n0 < 16 ? (int)(w->rows - n0) : 16;
    for (; steps-- > 0; k += PAIRS_STEP, to += PAIRS_WORDS * ld) {
        _Alignas(64) uint16_t part[16 * PAIRS_STEP];
        const char *at = (const char *)w->data + ((size_t)n0 * K + k) * sizeof(uint16_t);
        if (rows == 16 && k + PAIRS_STEP <= K) {
            for (size_t i = 0; i < 16; i++)
                _mm_prefetch((const void *)((uintptr_t)at + i * stride + (size_t)next),
                             _MM_HINT_T1);
            step_words(at, stride, to, ld);
            continue;
        }
        size_t bytes = K - k < PAIRS_STEP ? (K - k) * sizeof *part : STEP_BYTES;
        memset(part, 0, sizeof part);
        for (int i = 0; i < rows; i++)
            memcpy(part + i * PAIRS_STEP, at + (size_t)i * stride, bytes);
        step_words((const char *)part, STEP_BYTES, to, ld);
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

/* ---- products -------------------------------------------------------------------------- */

fv_cpu_plan fv_pairs_linear_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    int columns = 16 * panels_of(a);
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += div_up(a->part[p].w.rows, columns);
    if (a->x.rows <= FEW) plan.grain = div_up(1 << 18, (int64_t)columns * (a->x.cols + 1));
    plan.scratch_bytes =
        sizeof(float) * (size_t)columns * ((size_t)a->x.rows + STEPS * PAIRS_WORDS);
    return plan;
}

/* Columns [n0, n0 + 16 panels) of y, as far as there are. */
static void item(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0, float *accs) {
    int M = b->a->x.rows, panels = panels_of(b->a), columns = 16 * panels;
    int N = p->w.rows - n0 < columns ? (int)(p->w.rows - n0) : columns;
    size_t all = steps_along(b->a), K = (size_t)p->w.cols;
    uint32_t *words = (uint32_t *)(void *)(accs + (size_t)M * (size_t)columns);
    float wide[16 * PAIRS_PANELS];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    memset(accs, 0, (size_t)M * (size_t)columns * sizeof *accs);
    memset(words, 0, STEPS * PAIRS_WORDS * (size_t)columns * sizeof *words);
    for (size_t s = 0; s < all; s += STEPS) {
        size_t steps = all - s < STEPS ? all - s : STEPS, k = s * PAIRS_STEP;
        ptrdiff_t next =
            steps < all - s ? STEPS * PAIRS_STEP : columns * (ptrdiff_t)K - (ptrdiff_t)k;
        for (int j = 0; 16 * j < N; j++)
            panel_words(&p->w, n0 + 16 * j, k, steps, next * (ptrdiff_t)sizeof(uint16_t),
                        words + 16 * j, (size_t)panels);
        pairs_products((pairs_tile){.x = (const uint32_t *)b->x + s * PAIRS_WORDS,
                                    .w = words,
                                    .ldx = all * PAIRS_WORDS,
                                    .ldw = (size_t)columns,
                                    .steps = steps,
                                    .acc = accs,
                                    .ld_row = (size_t)columns,
                                    .ld_panel = 16},
                       M, panels);
    }
    for (int m = 0; m < M; m++) store_sums(p, m, n0, N, bias, accs + (size_t)(m * columns));
}

void fv_pairs_linear_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    int columns = 16 * panels_of(b->a);
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t n = div_up(b->a->part[p].w.rows, columns);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            if (in_place(b->a))
                item_in_place(b, &b->a->part[p], i * columns);
            else
                item(b, &b->a->part[p], i * columns, scratch);
        begin -= n;
        end -= n;
    }
}
