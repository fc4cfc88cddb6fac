/* Products with w in panels of f32 (packed_products.h) with AMX (amx/tiles.h), for attention on packed rows, which
 * decodes into such panels.
 *
 * x is operand A, in rows of 32 bf16; a panel is packed as operand B, in pairs of its lines, once for
 * all rows of x. Four panels are multiplied by 16 rows at a time. */
#include "kernels/cpu/packed_products.h"

#include <string.h>

#include "kernels/cpu/amx/products.h"
#include "kernels/cpu/amx/tiles.h"

enum { STEP = 32, STEPS = 8, PANELS = 4, WORDS = TILE_BYTES / 4 };

static void open_tiles(void) { tiles_open(TILE_ROWS); }

/* Packs 32 lines of a panel as pairs. */
static void pair_lines(const float *w, size_t ld, uint32_t *to) {
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i at = _mm512_loadu_si512(order);
    for (int i = 0; i < TILE_ROWS; i++, w += 2 * ld) {
        __m512i both = narrow(_mm512_loadu_ps(w), _mm512_loadu_ps(w + ld));
        _mm512_store_si512(to + i * TILE_ROWS, _mm512_permutexvar_epi16(at, both));
    }
}

/* Narrows `rows` rows of 32 numbers, with zeros after them. */
static void narrow_rows(const float *x, size_t ld, int rows, uint16_t *to) {
    for (int i = 0; i < rows; i++, x += ld)
        _mm512_store_si512(to + i * STEP, narrow(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)));
    memset(to + rows * STEP, 0, (size_t)(TILE_ROWS - rows) * STEP * sizeof *to);
}

/* Adds 16 rows of x times four panels to the sums. Not inlined: GCC does not know that tile loads read
 * memory. */
static NEVER_INLINE void block(const uint16_t *a, const uint32_t *pairs, size_t steps,
                               float *sums) {
    sums_load(sums, TILE_ROWS);
    for (size_t s = 0; s < steps; s++, a += TILE_ROWS * STEP, pairs += PANELS * WORDS) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, pairs, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, pairs + WORDS, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(6, pairs + 2 * WORDS, 64);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(7, pairs + 3 * WORDS, 64);
        _tile_dpbf16ps(3, 4, 7);
    }
    sums_store(sums, TILE_ROWS);
}

/* Multiplies up to four panels from panel j on, over up to STEPS steps from step s on. */
static void multiply_block(const bf16_product *a, int j, size_t s) {
    _Alignas(64) uint32_t pairs[STEPS * PANELS * WORDS];
    _Alignas(64) uint16_t x[STEPS * TILE_ROWS * STEP];
    _Alignas(64) float sums[PANELS * WORDS] = {0};
    int panels = min_int(PANELS, a->panels - j);
    size_t steps = a->steps - s < STEPS ? a->steps - s : STEPS;
    for (int p = 0; p < PANELS; p++) {
        const float *w = a->w + (size_t)(j + p) * a->ldw + s * STEP * a->ld_line;
        for (size_t i = 0; i < steps; i++, w += STEP * a->ld_line) {
            uint32_t *to = pairs + (i * PANELS + (size_t)p) * WORDS;
            if (p < panels)
                pair_lines(w, a->ld_line, to);
            else
                memset(to, 0, TILE_BYTES);
        }
    }
    for (int m = 0; m < a->M; m += TILE_ROWS) {
        int rows = min_int(TILE_ROWS, a->M - m);
        float *acc = a->acc + (size_t)m * a->ld_row + (size_t)j * a->ld_panel;
        for (int p = 0; p < panels; p++)
            for (int i = 0; i < rows; i++)
                memcpy(sums + p * WORDS + i * TILE_ROWS,
                       acc + (size_t)i * a->ld_row + (size_t)p * a->ld_panel, 64);
        for (size_t i = 0; i < steps; i++)
            narrow_rows(a->x + (size_t)m * a->ldx + (s + i) * STEP, a->ldx, rows,
                        x + i * TILE_ROWS * STEP);
        block(x, pairs, steps, sums);
        for (int p = 0; p < panels; p++)
            for (int i = 0; i < rows; i++)
                memcpy(acc + (size_t)i * a->ld_row + (size_t)p * a->ld_panel,
                       sums + p * WORDS + i * TILE_ROWS, 64);
    }
}

static void multiply(const bf16_product *a) {
    for (int j = 0; j < a->panels; j += PANELS)
        for (size_t s = 0; s < a->steps; s += STEPS) multiply_block(a, j, s);
}

const packed_products fv_amx_packed_products = {.multiply = multiply,
                                                .rounds = true,
                                                .step = STEP,
                                                .open = open_tiles,
                                                .close = tiles_close,
                                                .keys = fv_amx_latent_keys};
