#ifndef FOVEA_KERNELS_CPU_PACKED_PRODUCTS_H
#define FOVEA_KERNELS_CPU_PACKED_PRODUCTS_H

/* acc [M, N] += x [M, K] w [K, N], canonical in bf16 along K, for w in panels of 16 columns. Numbers are
 * f32, rounded to bf16 by the caller unless the product does so (`rounds`); K is whole steps, with zeros in
 * both. */
#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/latent_keys.h"

typedef struct bf16_product {
    const float *x, *w;
    size_t ldx, ldw,
        ld_line; /* ldw from panel to panel of w, ld_line from line to line of a panel */
    int M, panels;
    size_t steps;
    float *acc; /* 16 numbers for each row and panel */
    size_t ld_row, ld_panel;
} bf16_product;

/* A product with w as words (avx512bf16/words.h) of panels: [steps, 16, ldw]. */
typedef struct words_product {
    const float *x;
    size_t ldx;
    int M, panels;
    size_t steps;
    const uint32_t *w;
    size_t ldw;
    float *acc; /* [M, ld_row] */
    size_t ld_row;
} words_product;

/* A tile of a KV head's keys in codes (latent.h). */
typedef struct coded_tile {
    const uint8_t *codes;  /* [D, 16 / 2] */
    const uint16_t *scale; /* [16] */
    const float *sigma,
        *affine;              /* [D] and [D, 2], of which the first numbers, the means, are read */
    const float *cos, *sin;   /* [D / 2, 16], or NULL: no rotation */
    const float *own, *own_z; /* own directions [D, ld_own]; coefficients on them, lines 64 apart */
    size_t n_own, ld_own;
    unsigned without; /* tokens whose bit is set are decoded from own directions alone */
    size_t D;
} coded_tile;

/* Unpacks factors in codes of 4 bits (packed/lowrank.h), and coded keys, to words. */
typedef struct packed_words {
    /* Makes tables [n / 4, 2, 16] for n columns of keys' U, n a multiple of 4; pair [n, 2]. */
    void (*tables)(const float *pair, size_t n, uint32_t *tables);
    /* Unpacks n columns of a tile, lines of 8 bytes, to words ld apart; 0 for tokens in the mask `without`. */
    void (*keys)(const char *lines, size_t n, const uint32_t *tables, unsigned without,
                 uint32_t *to, size_t ld);
    /* Unpacks rows j[0 .. n) of values' U to words, `width` columns in panels side by side, with zeros after the
     * rows: rows are `stride` bytes apart, each has a pair [2] F16; column [width], up to whole vectors. */
    void (*rows)(const char *from, size_t stride, const char *pair, const float *column,
                 size_t width, const int32_t *j, int32_t n, uint32_t *to);
    /* Unpacks n lines of a basis, `width` codes each, `stride` bytes apart, to words [n up to whole steps / 2, ld],
     * with zeros after the lines. lo and step: with of_columns one per column, up to whole vectors, else per line. */
    void (*basis)(const char *lines, size_t stride, size_t n, size_t width, const float *lo,
                  const float *step, bool of_columns, uint32_t *to, size_t ld);
    /* Unpacks a tile's keys, rotated, to words [D / 2, 16], lines ld apart; D a multiple of 8. */
    void (*coded)(const coded_tile *t, uint32_t *to, size_t ld);
    void (*multiply)(const words_product *a);
} packed_words;

/* The products of attention on packed rows: in f32 chains of lanes/chains.h, or canonical in bf16. */
typedef struct packed_products {
    void (*multiply)(const bf16_product *a); /* NULL: chains */
    bool rounds;                             /* multiply() rounds x and w itself */
    size_t step;                             /* K is padded to a multiple of it */
    void (*open)(void), (*close)(void);      /* around items, on their thread; or NULL */
    latent_keys_fn *keys;      /* called between open and close; NULL: the path's own */
    const packed_words *words; /* or NULL */
} packed_products;

#endif
