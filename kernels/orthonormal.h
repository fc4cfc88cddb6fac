#ifndef FOVEA_KERNELS_ORTHONORMAL_H
#define FOVEA_KERNELS_ORTHONORMAL_H

/* ORTHONORMAL ROWS in the place of given ones, by CholeskyQR2 (Yamamoto et al. 2015):
 *
 *     Y Y^T = L L^T,  Y <- L^-1 Y,   twice       the second time repairs what rounding left
 *
 * L is lower triangular, so the first r rows of the result span what the first r rows did. A row
 * that depends on those before it (equal rows, rows of zeros, more rows than columns) is dropped.
 * Rows may point nearly the same way, so Y Y^T is summed in double: in f32 it would lose what is
 * below 3e-4 of a row. Where the first time leaves nothing to repair there is no second. Products
 * run on the backend and give the same bits with any number of threads. */
#include "kernels/matrices.h"

/* y [p, N] F32 in the backend's memory, contiguous; y->rows becomes the number of rows that are
 * left. *spare is memory for as many numbers, and the two may be swapped. Temporary memory
 * is that of `in`. */
fv_status fv_orthonormal(fv_matrices *in, fv_tensor *y, void **spare);

#endif
