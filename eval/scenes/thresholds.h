#ifndef FOVEA_EVAL_SCENES_THRESHOLDS_H
#define FOVEA_EVAL_SCENES_THRESHOLDS_H

/* THRESHOLDS of VisiPruner for a checkpoint. They are published for LLaVA-1.5 only, and norms
 * differ from network to network. What carries over is their effect: tokens are filtered near the
 * middle of the depth, few of them stay, and those are dropped in the last third. So thresholds are
 * chosen from measurements, such that on the same images the mean layer of the filter, the share of
 * tokens that stay and the mean layer of the exit have given values.
 *
 * Measured values are in least [n_item, n_layer]: the smallest cosine over visual tokens of an item
 * in a layer; FV_NOT_LOOKED where there is none. Layers count from 0; n_layer means never.
 * Pure functions: any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define FV_NOT_LOOKED (-2.0f)

/* The layer after which an item is filtered: the first in which some cosine is below `cos`. */
int32_t fv_filter_layer(const float *least, int32_t n_layer, double cos);

/* The layer after which the remaining tokens are dropped: the one in which, for the `count`-th
 * time, no cosine is below `cos`. */
int32_t fv_exit_layer(const float *least, int32_t n_layer, int32_t count, double cos);

/* The cosine at which the mean of those layers is nearest to `layer`; *mean becomes it. Where
 * nothing was measured that is 1, and the mean is what no measurement gives: n_layer. */
fv_status fv_filter_cos(const float *least, int32_t n_item, int32_t n_layer, double layer,
                        double *cos, double *mean);
fv_status fv_exit_cos(const float *least, int32_t n_item, int32_t n_layer, int32_t count,
                      double layer, double *cos, double *mean);

/* The norm that a share of n values is above, one of them at least; the values are sorted. FV_EDATA
 * when there are none. */
fv_status fv_kept_map_l2(float *l2, size_t n, double share, double *least);

#endif
