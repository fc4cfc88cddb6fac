#ifndef FOVEA_FACTOR_ORTHONORMAL_H
#define FOVEA_FACTOR_ORTHONORMAL_H

/* MAKES ROWS ORTHONORMAL by CholeskyQR2 (Yamamoto et al. 2015):
 *
 *     Y Y^T = L L^T,  Y <- L^-1 Y,   twice       the second pass repairs the rounding of the first
 *
 * L is lower triangular, so the first r rows of the result span the same space as the first r rows. A
 * row that depends on those before it (equal rows, rows of zeros, more rows than columns) is dropped.
 * Rows may point nearly the same way, so Y Y^T is summed in double: f32 would lose components below
 * 3e-4 of a row. The second pass is skipped if the first leaves nothing to repair. Products run on the
 * backend and give the same bits with any number of threads. */
#include "factor/matrices.h"

/* Replaces y [p, N], F32, in the backend's memory, contiguous; y->rows becomes the number of rows left.
 * *spare is memory of the same size, and the two may be swapped. Temporary memory comes from `in`. */
fv_status fv_orthonormal(fv_matrices *in, fv_tensor *y, void **spare);

#endif
