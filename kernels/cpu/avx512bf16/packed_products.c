/* Products with w in panels of f32 (packed_products.h) with AVX-512 BF16 (avx512bf16/words.h). w is packed as words
 * once for all rows of x. fv_avx512bf16_is_canonical() is false on a processor whose sums differ in order or
 * rounding. */
#include "kernels/cpu/avx512bf16/products.h"
#include "kernels/cpu/avx512bf16/words.h"

enum {
    STEPS = 4, /* packed at a time: 16 KiB of w for four panels */
    ROWS = 24, /* of x packed at a time: 6 KiB */
};

/* ---- words ----------------------------------------------------------------------------- */

/* Words of lines k and k + 2 of a panel. */
static inline __m512i two_lines(const float *w, size_t ld) {
    return line_words(_mm512_loadu_ps(w), _mm512_loadu_ps(w + 2 * ld));
}

/* Packs steps of n panels from panel j on as words. */
static void panel_words(const bf16_product *a, int j, int n, size_t s, size_t steps, uint32_t *to) {
    for (int p = 0; p < n; p++) {
        const float *w = a->w + (size_t)(j + p) * a->ldw + s * WORDS_STEP * a->ld_line;
        uint32_t *at = to + (size_t)p * 16;
        for (size_t i = 0; i < steps * HALF_WORDS; i++, w += 4 * a->ld_line) {
            _mm512_store_si512(at, two_lines(w, a->ld_line));
            at += (size_t)n * 16;
            _mm512_store_si512(at, two_lines(w + a->ld_line, a->ld_line));
            at += (size_t)n * 16;
        }
    }
}

/* ---- products -------------------------------------------------------------------------- */

static void multiply_panels(const bf16_product *a, int j, int n, size_t s, size_t steps) {
    _Alignas(64) uint32_t w[STEPS * STEP_WORDS * WORDS_PANELS * 16], x[ROWS * STEPS * STEP_WORDS];
    panel_words(a, j, n, s, steps, w);
    for (int m = 0, rows; m < a->M; m += rows) {
        rows = a->M - m < ROWS ? a->M - m : ROWS;
        pack_rows_as_words(a->x + (size_t)m * a->ldx + s * WORDS_STEP, a->ldx, rows, steps, x,
                           STEPS * STEP_WORDS);
        words_products((words_tile){.x = x,
                                    .w = w,
                                    .ldx = STEPS * STEP_WORDS,
                                    .ldw = (size_t)n * 16,
                                    .steps = steps,
                                    .acc = a->acc + (size_t)m * a->ld_row + (size_t)j * a->ld_panel,
                                    .ld_row = a->ld_row,
                                    .ld_panel = a->ld_panel},
                       rows, n);
    }
}

static void multiply(const bf16_product *a) {
    for (int j = 0, n; j < a->panels; j += n) {
        n = a->panels - j < WORDS_PANELS ? 1 : WORDS_PANELS;
        for (size_t s = 0; s < a->steps; s += STEPS)
            multiply_panels(a, j, n, s, a->steps - s < STEPS ? a->steps - s : STEPS);
    }
}

const packed_products fv_avx512bf16_packed_products = {
    .multiply = multiply, .rounds = true, .step = WORDS_STEP, .words = &fv_avx512bf16_packed_words};

/* ---- the processor ---------------------------------------------------------------------- */

bool fv_avx512bf16_is_canonical(void) {
    static const struct {
        float sum, upper[2], lower[2], want;
    } cases[] = {
        {1, {0x1p-12f, 0x1p-12f}, {0x1p-12f, 0x1p-12f}, 1}, /* each is lost alone */
        {1, {0x1p12f, 0x1p12f}, {-0x1p12f, 0x1p12f}, 0},
        {0x1p24f, {1, 1}, {-0x1p12f, 0x1p12f}, 0}, /* depends on the order */
        {0x1p24f, {-0x1p12f, 0x1p12f}, {1, 1}, 1},
        {0x1p-126f, {-0x1p-100f, 0x1p-27f}, {1, 0x1p-126f}, 0x1p-126f}, /* 2^-127 on the way */
        {0x1p-127f, {0, 0}, {0x1p-126f, 1}, 0x1p-126f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        __m512i of[2];
        for (int k = 0; k < 2; k++) {
            __m512i upper = _mm512_castps_si512(_mm512_set1_ps(cases[i].upper[k]));
            __m512i lower = _mm512_castps_si512(_mm512_set1_ps(cases[i].lower[k]));
            of[k] = _mm512_or_si512(upper, _mm512_srli_epi32(lower, 16));
        }
        __m512 y = dot_words(_mm512_set1_ps(cases[i].sum), of[0], of[1]);
        if (_mm512_cmp_ps_mask(y, _mm512_set1_ps(cases[i].want), _CMP_NEQ_UQ)) return false;
    }
    return true;
}
