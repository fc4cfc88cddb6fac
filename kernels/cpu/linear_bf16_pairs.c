/* y = x w^T + bias (+ y) in bf16 with AVX-512 BF16 (pairs_avx512.h). w is read in place, eight rows at a time,
 * and x is packed as words once (pairs_eights_avx512.h). */
#include "kernels/cpu/linear_bf16_pairs.h"

#include "kernels/cpu/linear_parts_lanes.h"
#include "kernels/cpu/narrow_avx512.h"
#include "kernels/cpu/pairs_eights_avx512.h"
#include "kernels/cpu/product_bf16.h"

static bool is_few(const fv_linear_args *a) { return a->x.rows <= EIGHTS_FEW; }

bool fv_pairs_take(const fv_linear_args *a) {
    if (!fv_bf16_pairs_run_here()) return false;
    for (int i = 0; i < a->n_part; i++)
        if (a->part[i].w.dtype != FV_BF16 || a->part[i].w.quant) return false;
    return true;
}

static size_t steps_along(const fv_linear_args *a) { return bf16_steps((size_t)a->x.cols); }

/* Rows of packed x: whole eights, except for few rows. */
static size_t rows_laid(const fv_linear_args *a) {
    return (size_t)(is_few(a) ? a->x.rows : (a->x.rows + EIGHT - 1) / EIGHT * EIGHT);
}

/* ---- x --------------------------------------------------------------------------------- */

/* An item packs one step of all rows. */
fv_cpu_plan fv_pairs_pack_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    const size_t steps = steps_along(a);
    return (fv_cpu_plan){.n_item = (int64_t)steps,
                         .grain = div_up(16384, (int64_t)a->x.rows * PAIRS_STEP + 1),
                         .shared_bytes = rows_laid(a) * steps * PAIRS_WORDS * sizeof(uint32_t)};
}

/* Words of step s of row m; zeros after the last row. */
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
        if (is_few(b->a)) {
            for (int m = 0; m < x->rows; m++)
                _mm512_store_si512((uint32_t *)b->x + ((size_t)m * steps + s) * PAIRS_WORDS,
                                   words_at(x, m, s));
            continue;
        }
        for (int m = 0; m < x->rows; m += EIGHT) {
            uint32_t *to = (uint32_t *)b->x + (size_t)m * steps * PAIRS_WORDS + s * EIGHTS_WORDS;
            __m512i of[EIGHT];
            UNROLL for (int i = 0; i < EIGHT; i++) of[i] = words_at(x, m + i, s);
            eights_transpose(of);
            UNROLL for (int i = 0; i < EIGHT; i++) _mm512_store_si512(to + i * 16, of[i]);
        }
    }
}

/* ---- products -------------------------------------------------------------------------- */

static ALWAYS_INLINE void products_of(const eights_tile *t, int M, const eights_place place,
                                      float *sums) {
    switch (M) {
    case 1: eights_few(t, 1, place, sums); break;
    case EIGHTS_FEW: eights_few(t, EIGHTS_FEW, place, sums); break;
    default: eights_many(t, 1, place, sums);
    }
}

/* Sums of M rows of x, few or whole eights. Not inlined: the compiler must not move its arithmetic across the
 * caller's changes of MXCSR. */
static NEVER_INLINE void products(const eights_tile *t, int M, float *sums) {
    const bool whole = t->last == ~0u;
    if (M > EIGHT && whole)
        eights_many(t, 2, EIGHTS_WHOLE, sums);
    else if (M > EIGHT)
        eights_many(t, 2, EIGHTS_PART, sums);
    else if (t->behind)
        products_of(t, M, EIGHTS_ACROSS, sums);
    else if (whole)
        products_of(t, M, EIGHTS_WHOLE, sums);
    else
        products_of(t, M, EIGHTS_PART, sums);
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

/* Computes columns [n0, n0 + 8) of y, as far as they exist. */
static void item(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0) {
    const size_t K = (size_t)p->w.cols, bytes_row = K * sizeof(uint16_t);
    const size_t steps = steps_along(b->a);
    const bool few = is_few(b->a);
    const int M = b->a->x.rows, N = p->w.rows - n0 < EIGHT ? (int)(p->w.rows - n0) : EIGHT;
    const char *at = (const char *)p->w.data + (size_t)n0 * bytes_row;
    float sums[2 * EIGHT * EIGHT], wide[EIGHT] = {0};
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    eights_tile t = {.x = b->x,
                     .ldx = steps * (few ? PAIRS_WORDS : EIGHTS_WORDS),
                     .steps = steps,
                     .last = K == 0 ? 0 : numbers_of(K % PAIRS_STEP),
                     .ahead = at + EIGHT * bytes_row,
                     .each = M <= 2 * EIGHT ? 64 : 32};
    if (M <= EIGHT && K > 0 && K % PAIRS_STEP == 0) { /* with more rows sums need the registers */
        t.behind = (uintptr_t)at % 64 / sizeof(uint16_t);
        t.last = numbers_of(t.behind);
    }
    for (int i = 0; i < EIGHT; i++)
        t.row[i] = at + (size_t)(i < N ? i : N - 1) * bytes_row - t.behind * sizeof(uint16_t);
    for (int m = 0; m < M; m += 2 * EIGHT) {
        const int left = M - m < 2 * EIGHT ? M - m : 2 * EIGHT;
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
        products(&t, few ? M : (left + EIGHT - 1) / EIGHT * EIGHT, sums);
        _mm_setcsr(before);
        store_eights(p, m, left, n0, (__mmask8)((1u << N) - 1), bias, sums);
        t.x += 2 * t.ldx;
        t.ahead += EIGHT * bytes_row / 2;
        if (m >= 2 * EIGHT) t.each = 0;
    }
}

/* ---- items ----------------------------------------------------------------------------- */

fv_cpu_plan fv_pairs_linear_bf16_plan(const void *args) {
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += div_up(a->part[p].w.rows, EIGHT);
    plan.grain = div_up(1 << 18, (int64_t)EIGHT * (a->x.cols + 1));
    return plan;
}

void fv_pairs_linear_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    (void)scratch;
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t n = div_up(b->a->part[p].w.rows, EIGHT);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            item(b, &b->a->part[p], i * EIGHT);
        begin -= n;
        end -= n;
    }
}
