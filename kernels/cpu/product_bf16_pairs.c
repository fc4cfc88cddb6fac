/* Products whose w is in panels of f32 (product_bf16.h) with AVX-512 BF16: two steps of a chain at a time,
 * twice as many as fused multiply-adds of f32 do.
 *
 * VDPBF16PS adds the product of the upper halves to the sum and then that of the lower halves, each
 * rounded, without subnormal numbers and whatever MXCSR says. So it goes on along a chain of even, or
 * of odd, numbers when k is the upper half and k + 2 the lower one:
 *
 *     16 words of a row's step      (0, 2) (4, 6) .. (28, 30)   even
 *                                   (1, 3) (5, 7) .. (29, 31)   odd
 *     and of a panel's              a vector of 16 columns in place of each word
 *
 * Words of w are made once for all rows of x. A processor whose sums differ, in order or rounding, does
 * without: fv_bf16_pairs_run_here() compares them. */
#include "kernels/cpu/product_bf16.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/narrow_avx512.h"

enum {
    STEP = 32,
    STEPS = 8, /* of w's words at a time, 32 KiB of four panels */
    ROWS = 24, /* of x, 12 KiB */
    WORDS = STEP / 2,
    HALF = WORDS / 2, /* words of even numbers */
    PANELS = 4,
    NARROW_ROWS = 8, /* rows of a tile of one panel, */
    WIDE_ROWS = 3    /* and of four: 16 and 24 sums */
};

static int least(int a, int b) { return a < b ? a : b; }

/* ---- words ----------------------------------------------------------------------------- */

/* Lines k and k + 2 of a panel. */
static inline __m512i line_words(const float *w, size_t ld) {
    static const uint16_t order[32] = {16, 0,  17, 1,  18, 2,  19, 3,  20, 4,  21,
                                       5,  22, 6,  23, 7,  24, 8,  25, 9,  26, 10,
                                       27, 11, 28, 12, 29, 13, 30, 14, 31, 15};
    __m512i both = narrow(_mm512_loadu_ps(w), _mm512_loadu_ps(w + 2 * ld));
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), both);
}

/* Of steps of n panels: [steps, WORDS, n, 16], even and odd in turn. */
static void panel_words(const bf16_product *a, int j, int n, size_t s, size_t steps, uint32_t *to) {
    for (int p = 0; p < n; p++) {
        const float *w = a->w + (size_t)(j + p) * a->ldw + s * STEP * a->ld_line;
        uint32_t *at = to + (size_t)p * 16;
        for (size_t i = 0; i < steps * HALF; i++, w += 4 * a->ld_line) {
            _mm512_store_si512(at, line_words(w, a->ld_line));
            at += (size_t)n * 16;
            _mm512_store_si512(at, line_words(w + a->ld_line, a->ld_line));
            at += (size_t)n * 16;
        }
    }
}

/* Of steps of n rows: [n, STEPS, WORDS], even and then odd. */
static void row_words(const float *x, size_t ld, int n, size_t steps, uint32_t *to) {
    static const uint16_t order[32] = {2, 0, 6, 4, 10, 8, 14, 12, 18, 16, 22, 20, 26, 24, 30, 28,
                                       3, 1, 7, 5, 11, 9, 15, 13, 19, 17, 23, 21, 27, 25, 31, 29};
    const __m512i at = _mm512_loadu_si512(order);
    for (int i = 0; i < n; i++, x += ld, to += STEPS * WORDS)
        for (size_t s = 0; s < steps; s++) {
            const float *from = x + s * STEP;
            __m512i all = narrow(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16));
            _mm512_store_si512(to + s * WORDS, _mm512_permutexvar_epi16(at, all));
        }
}

/* ---- products -------------------------------------------------------------------------- */

static inline __m512 go_on(__m512 sum, __m512i x, __m512i w) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
}

/* mr rows times np panels; both are constants after inlining. */
static ALWAYS_INLINE void tile(const uint32_t *x, const uint32_t *w, size_t steps, const int mr,
                               const int np, float *acc, size_t ld_row, size_t ld_panel) {
    for (size_t s = 0; s < steps; s++, x += WORDS) {
        __m512 even[24], odd[24];
        UNROLL for (int i = 0; i < mr * np; i++) even[i] = odd[i] = _mm512_setzero_ps();
        for (int k = 0; k < HALF; k++, w += 2 * np * 16) {
            __m512i of[PANELS];
            UNROLL for (int p = 0; p < np; p++) of[p] = _mm512_load_si512(w + p * 16);
            UNROLL for (int i = 0; i < mr; i++) {
                __m512i all = _mm512_set1_epi32((int)x[i * STEPS * WORDS + k]);
                UNROLL for (int p = 0; p < np; p++) even[i * np + p] =
                    go_on(even[i * np + p], all, of[p]);
            }
            UNROLL for (int p = 0; p < np; p++) of[p] = _mm512_load_si512(w + (np + p) * 16);
            UNROLL for (int i = 0; i < mr; i++) {
                __m512i all = _mm512_set1_epi32((int)x[i * STEPS * WORDS + HALF + k]);
                UNROLL for (int p = 0; p < np; p++) odd[i * np + p] =
                    go_on(odd[i * np + p], all, of[p]);
            }
        }
        UNROLL for (int i = 0; i < mr * np; i++) {
            float *at = acc + (size_t)(i / np) * ld_row + (size_t)(i % np) * ld_panel;
            _mm512_storeu_ps(at,
                             _mm512_add_ps(_mm512_loadu_ps(at), _mm512_add_ps(even[i], odd[i])));
        }
    }
}

/* n rows of one panel, and of four. */
static void narrow_tile(const bf16_product *a, const uint32_t *x, const uint32_t *w, size_t steps,
                        int n, float *acc) {
    switch (n) {
#define ROWS_OF(mr)                                                                                \
    case mr: tile(x, w, steps, mr, 1, acc, a->ld_row, a->ld_panel); return
        ROWS_OF(1);
        ROWS_OF(2);
        ROWS_OF(3);
        ROWS_OF(4);
        ROWS_OF(5);
        ROWS_OF(6);
        ROWS_OF(7);
        ROWS_OF(8);
#undef ROWS_OF
    default: assert(0);
    }
}

static void wide_tile(const bf16_product *a, const uint32_t *x, const uint32_t *w, size_t steps,
                      int n, float *acc) {
    switch (n) {
    case 1: tile(x, w, steps, 1, PANELS, acc, a->ld_row, a->ld_panel); return;
    case 2: tile(x, w, steps, 2, PANELS, acc, a->ld_row, a->ld_panel); return;
    default: tile(x, w, steps, 3, PANELS, acc, a->ld_row, a->ld_panel);
    }
}

/* A function of its own, between two settings of MXCSR: nothing of it may move out. */
static NEVER_INLINE void multiply_panels(const bf16_product *a, int j, int n, size_t s,
                                         size_t steps) {
    _Alignas(64) uint32_t w[STEPS * WORDS * PANELS * 16], x[ROWS * STEPS * WORDS];
    int most = n == 1 ? NARROW_ROWS : WIDE_ROWS;
    panel_words(a, j, n, s, steps, w);
    for (int m = 0; m < a->M; m += ROWS) {
        int rows = least(ROWS, a->M - m);
        float *acc = a->acc + (size_t)m * a->ld_row + (size_t)j * a->ld_panel;
        row_words(a->x + (size_t)m * a->ldx + s * STEP, a->ldx, rows, steps, x);
        for (int i = 0; i < rows; i += most)
            (n == 1 ? narrow_tile : wide_tile)(a, x + i * STEPS * WORDS, w, steps,
                                               least(most, rows - i), acc + (size_t)i * a->ld_row);
    }
}

static void multiply(const bf16_product *a) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ: of the sums of even and odd */
    for (int j = 0, n; j < a->panels; j += n) {
        n = a->panels - j < PANELS ? 1 : PANELS;
        for (size_t s = 0; s < a->steps; s += STEPS)
            multiply_panels(a, j, n, s, a->steps - s < STEPS ? a->steps - s : STEPS);
    }
    _mm_setcsr(before);
}

const packed_products fv_pairs_packed_products = {
    .multiply = multiply, .rounds = true, .step = STEP};

/* ---- where ----------------------------------------------------------------------------- */

/* Whether a step of this processor is the upper product and then the lower one, each rounded, and a
 * subnormal number zero. */
static bool is_canonical(void) {
    /* 1 + 2^-24 + 2^-24: each is lost alone. 2^24 + 1 - 2^24: only the order tells. 2^-126 - 2^-127, and
     * 2^-127 - 2^-126. */
    static const struct {
        float sum, upper[2], lower[2], want;
    } cases[] = {{1, {0x1p-12f, 0x1p-12f}, {0x1p-12f, 0x1p-12f}, 1},
                 {1, {0x1p12f, 0x1p12f}, {-0x1p12f, 0x1p12f}, 0},
                 {0x1p24f, {1, 1}, {-0x1p12f, 0x1p12f}, 0},
                 {0x1p24f, {-0x1p12f, 0x1p12f}, {1, 1}, 1},
                 {0x1p-126f, {-0x1p-100f, 0x1p-27f}, {1, 0x1p-126f}, 0x1p-126f},
                 {0x1p-127f, {0, 0}, {0x1p-126f, 1}, 0x1p-126f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        __m512 lo = _mm512_set1_ps(cases[i].lower[0]), hi = _mm512_set1_ps(cases[i].upper[0]);
        __m512i x = _mm512_or_si512(_mm512_castps_si512(hi),
                                    _mm512_srli_epi32(_mm512_castps_si512(lo), 16));
        lo = _mm512_set1_ps(cases[i].lower[1]), hi = _mm512_set1_ps(cases[i].upper[1]);
        __m512i w = _mm512_or_si512(_mm512_castps_si512(hi),
                                    _mm512_srli_epi32(_mm512_castps_si512(lo), 16));
        __m512 y = go_on(_mm512_set1_ps(cases[i].sum), x, w);
        if (_mm512_cmp_ps_mask(y, _mm512_set1_ps(cases[i].want), _CMP_NEQ_UQ)) return false;
    }
    return true;
}

bool fv_bf16_pairs_run_here(void) {
    static _Atomic int known; /* 1: no, 2: yes */
    if (known) return known == 2;
    __builtin_cpu_init();
    bool yes = __builtin_cpu_supports("avx512bf16") && is_canonical();
    known = yes ? 2 : 1;
    return yes;
}
