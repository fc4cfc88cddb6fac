#ifndef FOVEA_KERNELS_FACTOR_H
#define FOVEA_KERNELS_FACTOR_H

/* LOW-RANK FACTORS of a tall matrix: what a packed block is made of (packed.h).
 *
 *     M ~= U B     M [T, W];  U [T, R];  B [R, W] with orthonormal rows, strongest first
 *
 * U = M B^T, so ||M - U B||^2 = ||M||^2 - ||U||^2, and that is how the error is known. Of all
 * matrices of rank R the truncated singular value decomposition is nearest (Eckart and Young 1936);
 * the subspace here is iterated until its error is at most 0.5 % above that one's, whatever the
 * spectrum, as long as that error is above 1 % of ||M||; below, rounding decides. Two ways to the
 * same, of which the one with fewer operations is taken:
 *
 *     gram     G = M M^T once, then Q <- orthonormal(Q G)     few rows
 *     sketch   Q <- orthonormal((Q M) M^T)                    many rows (Halko, Martinsson and
 *                                                             Tropp 2011, with power iterations)
 *
 * from Q = orthonormal(Omega G) or orthonormal(Omega M^T), Omega random from a seed, with more rows
 * than are kept. Rayleigh and Ritz sort: u_i the best R vectors in span(Q), w_i what they keep.
 * What they lack is estimated from the residuals G u_i - w_i u_i; when that is little, the rows G
 * u_i M, made orthonormal, are B, and better than the u_i by three halves of a step. What that has
 * brought is measured, and the iteration ends when hardly any of the estimate is left (the rule:
 * kernels/factor_rule.h). Every product is an operation of the backend with a fixed order of
 * summation, in f32 whatever the backend computes in: the same M and seed give the same bits with any
 * number of threads, on any path. A BLAS would not, and would bring threads that fight with the
 * backend's. */
#include "kernels/matrices.h"

typedef enum fv_factor_way { FV_FACTOR_AUTO = 0, FV_FACTOR_GRAM, FV_FACTOR_SKETCH } fv_factor_way;

typedef struct fv_factor_goal {
    int32_t rank;  /* R at most, >= 1 */
    double energy; /* stop at the smallest R that keeps this share of ||M||^2 (an error of e is a
                    * share of 1 - e^2); 0: R as it is */
    uint64_t seed;
    fv_factor_way way;
} fv_factor_goal;

typedef struct fv_factor {
    int32_t rank; /* R: less than asked where M has fewer directions; 1 at least */
    float *u;     /* [T, R] of the arena */
    float *basis; /* [R, W] of the arena */
    double error; /* ||M - U B|| / ||M||; 0 for a matrix of zeros, whose factor U is 0 */
    fv_factor_way way;
    int32_t steps; /* iterations */
} fv_factor;

/* m [T, W] F32, contiguous, in the backend's memory, T, W >= 1. `scratch` gives the result, on the
 * host, and temporary host memory, in all about 6 (T + W) (R + 16) + T^2 numbers; on a device
 * products run there, and small matrices and sums of squares on the host. FV_EINVAL when M is not
 * finite, which names the row, or above 2^100. The thread that owns the backend. */
fv_status fv_factorise(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                       const fv_factor_goal *goal, fv_factor *out);

/* Of n matrices, together where the backend has an operation for that (its sums then have an order
 * of their own, and the bits are not those of fv_factorise), otherwise one after the other. M may
 * come back changed. *bad: the matrix that an FV_EINVAL is about. */
fv_status fv_factorise_all(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                           const fv_factor_goal *goal, int32_t n, fv_factor *out, int32_t *bad);

#endif
