#ifndef FOVEA_FACTOR_FACTOR_H
#define FOVEA_FACTOR_FACTOR_H

/* LOW-RANK FACTORS of a tall matrix, for packed blocks (packed/lowrank.h).
 *
 *     M ~= U B     M [T, W];  U [T, R];  B [R, W] with orthonormal rows, strongest first
 *
 * U = M B^T, so ||M - U B||^2 = ||M||^2 - ||U||^2 gives the error. The truncated singular value
 * decomposition is the nearest matrix of rank R (Eckart and Young 1936); the subspace is iterated until
 * its error is at most 0.5 % above that, for every spectrum, as long as that error is above 1 % of
 * ||M||; below, rounding limits it. There are two ways, and the one with fewer operations is taken:
 *
 *     gram     G = M M^T once, then Q <- orthonormal(Q G)     few rows
 *     sketch   Q <- orthonormal((Q M) M^T)                    many rows (Halko, Martinsson and
 *                                                             Tropp 2011, with power iterations)
 *
 * from Q = orthonormal(Omega G) or orthonormal(Omega M^T), Omega random from a seed, with more rows
 * than are kept. Rayleigh-Ritz selects: u_i are the best R vectors in span(Q), w_i the energy they
 * keep. The energy they lack is estimated from the residuals G u_i - w_i u_i; when it is small, B is
 * the rows G u_i M made orthonormal, which are better than the u_i by three halves of a step. The gain
 * of that is measured, and the iteration ends when hardly any of the estimate is left (the rule:
 * kernels/factor_rule.h). Every product is an operation of the backend with a fixed order of
 * summation, in f32 whatever the backend computes in: the same M and seed give the same bits with any
 * number of threads, on any path. A BLAS does not guarantee that, and its threads would compete with
 * the backend's. */
#include "factor/matrices.h"

typedef enum fv_factor_way { FV_FACTOR_AUTO = 0, FV_FACTOR_GRAM, FV_FACTOR_SKETCH } fv_factor_way;

typedef struct fv_factor_goal {
    int32_t rank;  /* the largest R, >= 1 */
    double energy; /* stop at the smallest R that keeps this share of ||M||^2 (an error of e is a
                    * share of 1 - e^2); 0: R as it is */
    uint64_t seed;
    fv_factor_way way;
} fv_factor_goal;

typedef struct fv_factor {
    int32_t rank; /* R: less than the goal's if M has fewer directions; at least 1 */
    float *u;     /* [T, R] of the arena */
    float *basis; /* [R, W] of the arena */
    double error; /* ||M - U B|| / ||M||; 0 for a matrix of zeros, whose factor U is 0 */
    fv_factor_way way;
    int32_t steps; /* iterations */
} fv_factor;

/* Factors m [T, W], F32, contiguous, in the backend's memory, T, W >= 1. The result, on the host, and
 * temporary host memory come from `scratch`, in all about 6 (T + W) (R + 16) + T^2 numbers; on a device
 * products run there, and small matrices and sums of squares on the host. FV_EINVAL if M is not finite,
 * with the row's number, or above 2^100. Call it on the thread that owns the backend. */
fv_status fv_factorise(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                       const fv_factor_goal *goal, fv_factor *out);

/* Factors n matrices, together if the backend has an operation for that (whose sums have another order,
 * so the bits differ from fv_factorise), otherwise one after the other. M may come back changed. *bad: the
 * index of the matrix that an FV_EINVAL is about. */
fv_status fv_factorise_all(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                           const fv_factor_goal *goal, int32_t n, fv_factor *out, int32_t *bad);

#endif
