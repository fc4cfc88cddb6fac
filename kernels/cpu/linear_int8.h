#ifndef FOVEA_KERNELS_CPU_LINEAR_INT8_H
#define FOVEA_KERNELS_CPU_LINEAR_INT8_H

/* Integer sums of rows of x with rows of w, exact in any order. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct int8_product {
    const int8_t *x;      /* [M, ldx], zeros after K up to a multiple of 64 */
    const int32_t *x_sum; /* [M] */
    const int8_t *w;      /* [N, K] without gaps; nothing after it is read */
    size_t K, ldx;
    int M, N;
    int32_t *out; /* [M, ld] */
    int ld;
} int8_product;

/* With AVX-512 VNNI, and whether this machine has it. */
void fv_vnni_int8_products(const int8_product *a);
bool fv_vnni_runs_here(void);

#endif
