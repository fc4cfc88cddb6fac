#ifndef FOVEA_KERNELS_CPU_PRODUCT_BF16_H
#define FOVEA_KERNELS_CPU_PRODUCT_BF16_H

/* x [M, K] times w [K, N], canonical in bf16 along K, on to acc [M, N]: what operations whose w is
 * laid in panels of 16 columns have in common. Numbers are f32, which the caller has rounded to bf16
 * unless the product does; K is whole steps, with zeros in both. */
#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/latent_keys.h"

typedef struct bf16_product {
    const float *x, *w;
    size_t ldx, ldw, ld_line; /* of w: from panel to panel, from line to line of a panel */
    int M, panels;
    size_t steps;
    float *acc; /* 16 numbers for each row and panel */
    size_t ld_row, ld_panel;
} bf16_product;

/* The products of attention on packed rows: in f32 chains of chains_lanes.h, or canonical in bf16. */
typedef struct packed_products {
    void (*multiply)(const bf16_product *a); /* NULL: chains */
    bool rounds;                             /* it rounds x and w */
    size_t step;                             /* K is a multiple of it in memory */
    void (*open)(void), (*close)(void);      /* around items, on their thread; or NULL */
    latent_keys_fn *keys;                    /* between the two; NULL: without tiles */
} packed_products;

extern const packed_products fv_amx_packed_products;

/* With AVX-512 BF16, where its products are steps of the canonical ones. */
extern const packed_products fv_pairs_packed_products;
bool fv_bf16_pairs_run_here(void);

#endif
