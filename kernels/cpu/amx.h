#ifndef FOVEA_KERNELS_CPU_AMX_H
#define FOVEA_KERNELS_CPU_AMX_H

/* The tile registers of AMX, as the products in bf16 use them:
 *
 *     0..3  sums        [16, cols] f32
 *     4, 5  A           [16, 32] bf16: rows as they lie in memory
 *     6, 7  B           [16, cols] pairs: pair i of column j's 32 numbers at row i
 *
 * One step of TDPBF16PS is one step of the canonical dot product (kernels/ops.h), whatever MXCSR
 * says. Tiles are opened and closed by whoever uses them, on one thread: state that is left open
 * makes every switch of threads save 8 KiB. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum { TILE_ROWS = 16, TILE_BYTES = 1024 };

static inline void tiles_open(int cols) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes_row[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = TILE_ROWS;
        c.bytes_row[i] = (uint16_t)(i == 4 || i == 5 ? 64 : 4 * cols);
    }
    _tile_loadconfig(&c);
}

/* Tiles 0 to 3, [4][16, cols]. */
static inline void sums_zero(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static inline void sums_load(const float *from, int cols) {
    size_t stride = sizeof *from * (size_t)cols;
    _tile_loadd(0, from, stride);
    _tile_loadd(1, from + TILE_ROWS * cols, stride);
    _tile_loadd(2, from + 2 * TILE_ROWS * cols, stride);
    _tile_loadd(3, from + 3 * TILE_ROWS * cols, stride);
}

static inline void sums_store(float *to, int cols) {
    size_t stride = sizeof *to * (size_t)cols;
    _tile_stored(0, to, stride);
    _tile_stored(1, to + TILE_ROWS * cols, stride);
    _tile_stored(2, to + 2 * TILE_ROWS * cols, stride);
    _tile_stored(3, to + 3 * TILE_ROWS * cols, stride);
}

static inline void tiles_close(void) { _tile_release(); }

#endif
