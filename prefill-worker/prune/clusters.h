#ifndef FOVEA_PREFILL_WORKER_PRUNE_CLUSTERS_H
#define FOVEA_PREFILL_WORKER_PRUNE_CLUSTERS_H

/* CLUSTERS by density peaks (Rodriguez and Laio 2014), as SparseVLM's code has them. With
 * d_ij = |x_i - x_j| / sqrt(d) and k clusters,
 *     density_i = exp(-mean of d_ij^2 over the k nearest j, i among them)
 *     delta_i   = least d_ij over j of greater density; the greatest of all d if there is no such j
 *     centres   the k rows of greatest delta_i density_i, in that order; each row joins the nearest
 * The authors add noise of 1e-6 to densities, so that none are equal; here the lower index wins. */
#include "common/arena.h"

/* x [n, d]; 1 <= k <= n. cluster[n]: the cluster of each row; centre[k]: the centres' rows. Scratch comes
 * from the arena. */
fv_status fv_clusters(const float *x, int32_t n, int32_t d, int32_t k, fv_arena *arena,
                      int32_t *cluster, int32_t *centre);

#endif
