#ifndef FOVEA_KERNELS_CUDA_FACTOR_H
#define FOVEA_KERNELS_CUDA_FACTOR_H

/* The kernels of factors (factor.cu) as their driver (factor.c) calls them. Each call is for a
 * batch of matrices, an item each, whose addresses are on the device. */
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix [., cols] whose rows are numbers `first`, first + 1, ... of all. */
typedef struct fv_cuda_rows {
    const float *x;
    int32_t cols, first;
} fv_cuda_rows;

/* Of each of `rows` rows: the sum of squares, and the bits of the largest absolute value, above
 * those of any number where the row is not finite. square, top [rows] on the device. */
fv_status fv_cuda_rows_measure(fv_cuda *c, const fv_cuda_rows *items, int32_t n, int32_t rows,
                               double *square, int32_t *top);

/* x = numbers of a seed (kernels/factor_rule.h); x = x * by. x is contiguous. */
fv_status fv_cuda_random(fv_cuda *c, const fv_tensor *x, uint64_t seed);
fv_status fv_cuda_scale(fv_cuda *c, const fv_tensor *x, float by);

/* Overwrites g [p, p], its lower triangle; e [p, p] is scratch; to [p, p] becomes L^-1, g = L L^T,
 * with zeros for rows of which less than `share` is new. most: the largest p. */
typedef struct fv_cuda_cholesky {
    double *g, *e;
    float *to;
    int32_t p;
} fv_cuda_cholesky;
fv_status fv_cuda_cholesky_invert(fv_cuda *c, const fv_cuda_cholesky *items, int32_t n,
                                  int32_t most, double share);

/* The symmetric `from` [p, p] (its lower triangle is read) is to^T diag(w) to, w [p] descending, to
 * [p, p]; h, z [p, p] are scratch. */
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
