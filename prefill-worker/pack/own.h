#ifndef FOVEA_PREFILL_WORKER_PACK_OWN_H
#define FOVEA_PREFILL_WORKER_PACK_OWN_H

/* DIRECTIONS OF A REQUEST'S OWN: approximates by a few more directions the residual that coefficients on
 * the checkpoint's directions leave of a group of layers, E = [E_1 E_2 ...] side by side.
 *
 *     E_l ~= U O_l        U [n, r] integers of -127..127, the same for all matrices; O_l [r, W]
 *
 * U's columns are the strongest left singular vectors of [sqrt(w_l) E_l], each scaled to a largest number
 * of 127 and rounded; O_l is the least-squares fit to each column separately. The vectors are found by
 * subspace iteration (Halko, Martinsson and Tropp 2011) from random rows of a fixed seed,
 *
 *     Q <- orthonormal(Q G),    G = sum over l of w_l E_l E_l^T        Q [p, n], p = r + 8
 *
 * and a final Rayleigh-Ritz step. Each pass shows the matrices one at a time, so that memory does not grow
 * with their number; a matrix takes 2 n W p multiply-adds per pass. Sums over matrices are
 * in double, in order: the same bits with any number of threads. A matrix of fewer than n rows has
 * the first ones.
 *
 * One thread, that of `in`. */
#include "factor/matrices.h"

enum { FV_OWN_PASSES = 3, FV_OWN_SPARE = 8 };

typedef struct fv_own {
    int32_t n, p, most; /* rows; rows of Q; directions, at most */
    float *q;           /* [p, n] */
    double *y;          /* [p, n] Q G of the matrices shown in this pass */
    int32_t r;          /* how many directions were chosen */
    float *u;           /* [n, r] */
} fv_own;               /* the arena owns the arrays */

fv_status fv_own_begin(fv_arena *arena, int32_t n, int32_t most, fv_own *own);

/* Shows a matrix e [rows, W] of weight w, rows <= n, F32 in the backend's memory. Each pass shows all
 * matrices. */
fv_status fv_own_add_matrix(fv_own *own, fv_matrices *in, const fv_tensor *e, double w);
fv_status fv_own_finish_pass(fv_own *own, fv_matrices *in); /* not after the last one */

/* Chooses, after the last pass, as few directions as bring the sum of w ||E||^2 from `lost` down to
 * `allowed`, at most `most`. */
fv_status fv_own_choose(fv_own *own, fv_arena *arena, double lost, double allowed);

/* Fits o [r, W], on the host, to one of the matrices. */
fv_status fv_own_directions(const fv_own *own, fv_matrices *in, const fv_tensor *e, float *o);

#endif
