#ifndef FOVEA_EVAL_SUITE_SPECTRUM_H
#define FOVEA_EVAL_SUITE_SPECTRUM_H

/* SINGULAR VALUES of a tall matrix A [n, d], by way of its Gram matrix.
 *
 *   A^T A = V S^2 V^T     (kernels/eigen.h)
 *
 * The square costs half of the digits: values below 1e-7 of the largest are noise, which is less
 * than what rows kept as f32 hold anyway.
 *
 * Pure functions: any thread. */
#include <stdint.h>

#include "common/status.h"
#include "kernels/eigen.h"

/* Adds row [d] to gram [d, d], lower triangle. */
void fv_gram_add(double *gram, int32_t d, const float *row);

/* Singular values [d], descending, of the matrix whose Gram matrix this is; gram [d, d] is used up
 * (its upper triangle is ignored). scratch [FV_EIGEN_SCRATCH d]. FV_EDATA when its numbers are not finite. */
fv_status fv_singular_values(double *gram, int32_t d, double *out, double *scratch);

/* The fewest values [d] that hold `share` of the sum of squares of all; 0 when all are 0. */
int32_t fv_spectrum_rank(const double *values, int32_t d, double share);

#endif
