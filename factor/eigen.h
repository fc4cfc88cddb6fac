#ifndef FOVEA_FACTOR_EIGEN_H
#define FOVEA_FACTOR_EIGEN_H

/* EIGENVECTORS of a small symmetric matrix, in double, on the calling thread.
 *
 *   A = Z^T diag(w) Z,  w descending        Householder tridiagonalisation, then QL with implicit
 *                                           shifts (Golub and Van Loan, 8.3; EISPACK tred2, tql2)
 *
 * About 9 n^3 operations; a fixed sequence of correctly rounded ones, so the same input gives the
 * same bits on every machine. */
#include <stdint.h>

#include "common/status.h"

enum { FV_EIGEN_SCRATCH = 3 };

/* Replaces a [n, n], symmetric (its lower triangle is read), by Z: row i belongs to w[i]. w [n]; `scratch`
 * [FV_EIGEN_SCRATCH n]. FV_EDATA if it does not converge, which happens only with non-finite numbers. */
fv_status fv_eigen_symmetric(double *a, int32_t n, double *w, double *scratch);

#endif
