#ifndef FOVEA_MODEL_LATENT_SKETCH_H
#define FOVEA_MODEL_LATENT_SKETCH_H

/* SKETCH OF SECOND MOMENTS [W, W] that would not fit into memory (fit.h). For rows x_j,
 * passed once, and a fixed matrix Omega [W, s] of random numbers, s = own + 64, it holds
 *
 *     Y = Omega^T sum x_j x_j^T, [s, W],  and  the D columns of sum x_j x_j^T of each row's head
 *
 * With the covariance C in the place of these sums and weights M^(1/2), A = M^(1/2) C M^(1/2) is
 * near its Nystrom approximation (Tropp, Yurtsever, Udell and Cevher 2017, without their shift:
 * eigenvalues of B that are rounding errors are left out instead)
 *
 *     A~ = (Y M^(1/2))^T B^+ (Y M^(1/2)),  B = Y Omega,  B^+ over eigenvalues above 1e-12 of the first
 *     Y M^(1/2) = L Q,  Q Q^T = I,  L^T B^+ L = U^T diag(w) U,  Z = U Q
 *
 * and the first `own` rows of Z span nearly what A's own eigenvectors span: on spectra that fall as
 * i^-1 to i^-1.8 they lose at most 1.12 times as much of tr A, for own = 48 and 128 of W = 1024.
 * The second moments of coefficients in the next pass are their Rayleigh-Ritz step. If rows span
 * fewer than `own` directions, the other rows of Z are zeros or have no variance.
 *
 * Sums are in double, row after row: the same rows give the same bits on any number of threads. 2 W s
 * + W D multiply-adds a row; 8 W (s + D) bytes and 8 W s for Omega, which sketches of one size
 * share. */
#include "common/arena.h"
#include "kernels/cpu/threads.h"

typedef struct fv_latent_sketch {
    size_t W, D, s;
    const double *omega; /* [W, s], borrowed */
    double *y;           /* [s, W] */
    double *block;       /* [W, D] columns of a row's head */
} fv_latent_sketch;

/* s for `own` directions of W; W if a sketch would be no smaller. */
size_t fv_latent_sketch_size(size_t W, size_t own);

/* Makes Omega [W, s], always the same numbers, in the arena. */
fv_status fv_latent_sketch_omega(fv_arena *arena, size_t W, size_t s, const double **omega);

/* Initializes an empty sketch, with arrays in the arena. */
fv_status fv_latent_sketch_init(fv_arena *arena, size_t W, size_t D, size_t s, const double *omega,
                                fv_latent_sketch *out);

/* Adds rows x [n, W]; scratch [n, s]. */
void fv_latent_sketch_add(fv_latent_sketch *k, fv_threads *threads, const double *x, size_t n,
                          double *scratch);

/* Turns sums over n rows of this mean [W] into those of their covariance. */
void fv_latent_sketch_center(fv_latent_sketch *k, const double *mean, double n);

/* tr M^(1/2) C M^(1/2) of a centered sketch, root M^(1/2) [W / D, D, D]. */
double fv_latent_sketch_variance(const fv_latent_sketch *k, const double *root);

/* Computes z [own, W] of a centered sketch, own <= s, from Y M^(1/2) [s, W], which becomes Q.
 * Temporary memory is the arena's. Runs on the calling thread. FV_EDATA: numbers are not finite. */
fv_status fv_latent_sketch_directions(const fv_latent_sketch *k, fv_arena *arena, double *weighted,
                                      size_t own, double *z);

#endif
