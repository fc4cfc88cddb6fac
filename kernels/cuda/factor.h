#ifndef FOVEA_KERNELS_CUDA_FACTOR_H
#define FOVEA_KERNELS_CUDA_FACTOR_H

/* The kernels (factor.cu) that factor.c calls. Each call takes a batch of matrices, an item each, with
 * addresses on the device. */
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix [., cols] whose rows have the indices `first`, first + 1, ... among all rows. */
typedef struct fv_cuda_rows {
    const float *x;
    int32_t cols, first;
} fv_cuda_rows;

/* Measures each of `rows` rows: the sum of squares, and the bits of the largest absolute value, above
 * those of any number where the row is not finite. square, top [rows] on the device. */
fv_status fv_cuda_rows_measure(fv_cuda *c, const fv_cuda_rows *items, int32_t n, int32_t rows,
                               double *square, int32_t *top);

/* Fills x with the random numbers of a seed (kernels/factor_rule.h); x = x * by. x is contiguous. */
fv_status fv_cuda_random(fv_cuda *c, const fv_tensor *x, uint64_t seed);
fv_status fv_cuda_scale(fv_cuda *c, const fv_tensor *x, float by);

/* Computes `to` [p, p] = L^-1 of g = L L^T, with zeros for rows of which less than `share` is new.
 * Overwrites the lower triangle of g [p, p]; e [p, p] is scratch. most: the largest p. */
typedef struct fv_cuda_cholesky {
    double *g, *e;
    float *to;
    int32_t p;
} fv_cuda_cholesky;
fv_status fv_cuda_cholesky_invert(fv_cuda *c, const fv_cuda_cholesky *items, int32_t n,
                                  int32_t most, double share);

/* Decomposes the symmetric `from` [p, p] (its lower triangle is read) into to^T diag(w) to, w [p]
 * descending, to [p, p]; h, z [p, p] are scratch. */
typedef struct fv_cuda_eigen {
    const float *from;
    double *h, *z, *w;
    float *to;
    int32_t p;
} fv_cuda_eigen;
fv_status fv_cuda_eigenvectors(fv_cuda *c, const fv_cuda_eigen *items, int32_t n, int32_t most);

#ifdef __cplusplus
}
#endif
#endif
