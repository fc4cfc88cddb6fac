#ifndef FOVEA_MODEL_LATENT_FIT_H
#define FOVEA_MODEL_LATENT_FIT_H

/* LATENT DIRECTIONS FROM ROWS (latent.h): the same rows are passed three times; memory does not
 * grow with their number.
 *
 *   1. mean and second moments of each layer's keys and values, [W, W] each; of the covariance C
 *          M^(1/2) C M^(1/2) = Z^T diag(w) Z;  the first r1 rows of Z are kept
 *   2. second moments of a group's coefficients y = (x - mean) M^(1/2) Z^T on these, side by side,
 *      [2 N_g r1, 2 N_g r1], of which the first R eigenvectors V are the group's directions. The
 *      only difference from the group's full second moments is the part outside each layer's r1
 *      directions
 *          encode P = M^(1/2) Z^T V^T,  decode B = V Z M^(-1/2)
 *   3. a histogram of coefficients divided by their deviations, and from it by Lloyd's algorithm the
 *      levels of 1 to 8 bits and their mean squared errors
 *
 * M [Hkv, D, D] are weights within a layer's keys or values, block by block (reads.h); without
 * them M = I. Every eigenvalue is raised by 1/1000 of their mean over the heads, so that M^(-1/2) is
 * bounded. Keys and values of each layer are divided by the root of their total variance, tr
 * M^(1/2) C M^(1/2), so that the directions lose the same share of large and small ones.
 *
 * Second moments take 16 N W^2 bytes. If that exceeds moment_bytes, the first pass sketches them
 * instead (sketch.h): the resulting r1 directions lose a little more; the second pass treats
 * them like eigenvectors.
 *
 * Sums are in double, row after row, so the same rows in the same order give the same bits. About
 * N W^2 n multiply-adds for n rows, 18 N W^3 for eigenvectors and 9 (2 N_g r1)^3 for each group's.
 * Threads share rows and columns of sums, and matrices whose eigenvectors are wanted: their number
 * changes no bit. 16 N W^2 bytes, and 8 W^2 more a thread. */
#include "model/latent/latent.h"

typedef struct fv_latent_fit fv_latent_fit; /* opaque */

enum { FV_LATENT_PASSES = 3 };
/* Default limit on memory for second moments. */
#define FV_LATENT_MOMENT_BYTES ((size_t)16 << 30)

/* Opens a fit. info: n_layer, n_kv, d_head, n_group_layer, and n_dir, at most what a group has.
 * Uses this many threads including the caller's; 0: one per core. Second moments of more than
 * moment_bytes are sketched. Gives *out. */
fv_status fv_latent_fit_open(const fv_latent_info *info, int threads, size_t moment_bytes,
                             fv_latent_fit **out);
void fv_latent_fit_close(fv_latent_fit *f); /* NULL is fine */

/* Sets weights M [Hkv, D, D] of a layer's keys or values, symmetric, copied. Call it before the end
 * of the first pass, for all parts or none. */
fv_status fv_latent_fit_weigh(fv_latent_fit *f, int32_t layer, int kind, const double *m);

/* Adds n rows m [n, Hkv * D] of one layer's keys before rotation (0) or values (1). After all
 * layers and both kinds of the same tokens, fv_latent_fit_end_rows ends these tokens. */
fv_status fv_latent_fit_rows(fv_latent_fit *f, int32_t layer, int kind, int32_t n, const float *m);
void fv_latent_fit_end_rows(fv_latent_fit *f);

/* Call it after all rows of a pass. FV_EINVAL: there were none. */
fv_status fv_latent_fit_end_pass(fv_latent_fit *f);

/* After the last pass: the numbers of the file (fv_latent_numbers), borrowed; and the share of
 * variance that the first n directions of a group hold. */
const float *fv_latent_fit_numbers(const fv_latent_fit *f);
double fv_latent_fit_energy(const fv_latent_fit *f, int32_t group, int32_t n);

#endif
