#ifndef FOVEA_KERNELS_CPU_AMX_TILES_H
#define FOVEA_KERNELS_CPU_AMX_TILES_H

/* The tile registers of AMX, as the products in bf16 and int8 use them:
 *
 *     0..3  sums        [16, cols] f32, or int32
 *     4, 5  A           [16, 32] bf16, or [16, 64] int8: rows in memory order
 *     6, 7  B           [16, cols] pairs of bf16, or quads of int8: element [i, j] is group i of column j
 *
 * One step of TDPBF16PS is one step of the canonical dot product (kernels/ops.h), whatever MXCSR
 * says. The user opens and closes the tiles on the same thread: with open tiles every context switch
 * saves 8 KiB. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/avx512bf16/narrow.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

enum { TILE_ROWS = 16, TILE_BYTES = 1024 };

/* A has rows of bytes_a bytes, B rows_b rows of `cols` words. */
static inline void tiles_open_as(int bytes_a, int rows_b, int cols) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes_row[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i < 6 ? TILE_ROWS : rows_b);
        c.bytes_row[i] = (uint16_t)(i == 4 || i == 5 ? bytes_a : 4 * cols);
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* GCC assumes that only 8 bytes of c are read */
    _tile_loadconfig(&c);
}

static inline void tiles_open(int cols) { tiles_open_as(64, TILE_ROWS, cols); }

/* Clears tiles 0 to 3, [4][16, cols]. */
static inline void sums_zero(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static inline void sums_load(const void *at, int cols) {
    const float *from = at;
    size_t stride = sizeof *from * (size_t)cols;
    _tile_loadd(0, from, stride);
    _tile_loadd(1, from + TILE_ROWS * cols, stride);
    _tile_loadd(2, from + 2 * TILE_ROWS * cols, stride);
    _tile_loadd(3, from + 3 * TILE_ROWS * cols, stride);
}

static inline void sums_store(void *at, int cols) {
    float *to = at;
    size_t stride = sizeof *to * (size_t)cols;
    _tile_stored(0, to, stride);
    _tile_stored(1, to + TILE_ROWS * cols, stride);
    _tile_stored(2, to + 2 * TILE_ROWS * cols, stride);
    _tile_stored(3, to + 3 * TILE_ROWS * cols, stride);
}

static inline void tiles_close(void) { _tile_release(); }

/* Packs a tile of B: columns [k, k + 32) of 16 rows of K numbers, of which `cols` rows become the tile's
 * columns; zeros for rows that are NULL and columns from K on. */
static inline void pairs_tile(const float *const rows[TILE_ROWS], size_t k, size_t K, int cols,
                              uint32_t *to) {
    uint32_t in = K - k < 32 ? (1u << (K - k)) - 1 : ~0u;
    __m512i r[TILE_ROWS];
    for (int j = 0; j < TILE_ROWS; j++) {
        r[j] = _mm512_setzero_si512();
        if (!rows[j]) continue;
        __m256i lo = bf16_of_16(_mm512_maskz_loadu_ps((__mmask16)in, rows[j] + k));
        __m256i hi = bf16_of_16(_mm512_maskz_loadu_ps((__mmask16)(in >> 16), rows[j] + k + 16));
        r[j] = _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
    }
    i32x16_transpose(r);
    __mmask16 m = (__mmask16)((1u << cols) - 1);
    for (int i = 0; i < TILE_ROWS; i++) _mm512_mask_storeu_epi32(to + i * cols, m, r[i]);
}

/* Packs a tile of B from 16 rows of 64 bytes, of which `cols` become the tile's columns. */
static inline void words_tile(int8_t rows[TILE_ROWS][64], int cols, uint32_t *to) {
    __m512i r[TILE_ROWS];
    for (int j = 0; j < TILE_ROWS; j++) r[j] = _mm512_loadu_si512(rows[j]);
    i32x16_transpose(r);
    __mmask16 m = (__mmask16)((1u << cols) - 1);
    for (int i = 0; i < TILE_ROWS; i++) _mm512_mask_storeu_epi32(to + i * cols, m, r[i]);
}

#endif
