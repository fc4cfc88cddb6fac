#ifndef FOVEA_PREFILL_WORKER_PACK_LACKING_H
#define FOVEA_PREFILL_WORKER_PACK_LACKING_H

/* TOKENS THAT SOME LAYERS LACK. Over all layers of a group B P = 1. The layers S that hold a token give
 *
 *   b = (x_S - mean_S) P_S = z G + noise      G = B_S P_S [n, n]
 *
 * The noise is the part of x that directions do not span. If it varies as the last direction does, its
 * covariance is deviation_n^2 G (1 - G), because over all layers P maps it to 0. As z has the directions'
 * known deviations, the best linear estimate is
 *
 *   z = b (G + L (1 - G))^-1                  L = diag(deviation_n^2 / deviation_r^2)
 *
 * G = 1 gives z = b. Directions without bits are left out. In double. Any thread. */
#include "common/arena.h"

typedef struct fv_lacking {
    int32_t n;       /* directions; 0: nothing is lacking */
    double *factors; /* [n, n] L U */
    int32_t *pivot;  /* [n] */
} fv_lacking;        /* the arena owns the arrays */

/* deviation [n], gram [n, n] = G. */
fv_status fv_lacking_init(fv_arena *arena, const float *deviation, const double *gram, int32_t n,
                          fv_lacking *out);

/* Replaces b in z [n] by the estimate; room [n] is scratch. */
void fv_missing_estimate(const fv_lacking *l, float *z, double *room);

#endif
