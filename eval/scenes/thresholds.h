#ifndef FOVEA_EVAL_SCENES_THRESHOLDS_H
#define FOVEA_EVAL_SCENES_THRESHOLDS_H

/* THRESHOLDS of VisiPruner for a checkpoint. Published ones exist only for LLaVA-1.5, and norms
 * differ between networks. Their effect carries over: tokens are filtered near the middle of the
 * depth, few of them stay, and those are dropped in the last third. So thresholds are chosen from
 * measurements such that the mean layer of the filter, the share of tokens that stay and the mean
 * layer of the exit have given values on the same images.
 *
 * Measured values are in least [n_item, n_layer]: the smallest cosine over visual tokens of an item
 * in a layer; FV_NOT_MEASURED if there is none. Layers count from 0; n_layer means never.
 * Pure functions: any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define FV_NOT_MEASURED (-2.0f)

/* Layer after which an item is filtered: the first in which some cosine is below `cos`. */
int32_t fv_filter_layer(const float *least, int32_t n_layer, double cos);

/* Layer after which the remaining tokens are dropped: the one in which, for the `count`-th time, no
 * cosine is below `cos`. */
int32_t fv_exit_layer(const float *least, int32_t n_layer, int32_t count, double cos);

/* Finds the cosine for which the mean of those layers is nearest to `layer`; *mean is that mean.
 * Without measurements the cosine is 1 and the mean n_layer. */
fv_status fv_filter_cos(const float *least, int32_t n_item, int32_t n_layer, double layer,
                        double *cos, double *mean);
fv_status fv_exit_cos(const float *least, int32_t n_item, int32_t n_layer, int32_t count,
                      double layer, double *cos, double *mean);

/* Finds the norm that a share of n values, at least one, exceeds; sorts the values. FV_EDATA if n
 * is 0. */
fv_status fv_kept_l2(float *l2, size_t n, double share, double *least);

#endif
