#ifndef FOVEA_EVAL_SUITE_SPECTRUM_H
#define FOVEA_EVAL_SUITE_SPECTRUM_H

/* SINGULAR VALUES of a tall matrix A [n, d], from its Gram matrix.
 *
 *   A^T A = V S^2 V^T     (factor/eigen.h)
 *
 * Squaring loses half of the digits: values below 1e-7 of the largest are noise, which is below the
 * precision of f32 rows anyway.
 *
 * Pure functions: any thread. */
#include <stdint.h>

#include "common/status.h"
#include "factor/eigen.h"

/* Adds row [d] to gram [d, d], lower triangle. */
void fv_gram_add(double *gram, int32_t d, const float *row);

/* Singular values [d], descending, of the matrix whose Gram matrix this is; gram [d, d] is
 * overwritten (its upper triangle is ignored). scratch [FV_EIGEN_SCRATCH d]. FV_EDATA if its
 * numbers are not finite. */
fv_status fv_singular_values(double *gram, int32_t d, double *out, double *scratch);

/* The smallest number of values [d] that hold `share` of the sum of all squares; 0 if all are 0. */
int32_t fv_spectrum_rank(const double *values, int32_t d, double share);

#endif
