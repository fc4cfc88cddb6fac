#ifndef FOVEA_EVAL_SCENES_THRESHOLDS_H
#define FOVEA_EVAL_SCENES_THRESHOLDS_H

/* THRESHOLDS of VisiPruner for a checkpoint. They are published for LLaVA-1.5 alone, and the norms
 * they are compared with are each network's own. What a reader can carry over is what they do: rows
 * are filtered about the middle of the depth, few of them stay, and those leave in the last third.
 * So thresholds are chosen from what was measured, such that on the same images the mean layer of
 * the filter, the share of rows that stay and the mean layer of the exit are what is asked for.
 *
 * Measured values stand in least [n_item, n_layer]: the smallest cosine over image tokens of an item
 * in a layer; FV_NOT_LOOKED where there is none. Layers count from 0; n_layer stands for never.
 * Pure functions: any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FV_NOT_LOOKED (-2.0f)

/* The layer behind which an item is filtered: the first in which some cosine is below `cos`. */
int32_t fv_filter_layer(const float *least, int32_t n_layer, double cos);

/* The layer behind which what stayed leaves: the one in which, for the `count`-th time, no cosine
 * is below `cos`. */
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

#ifdef __cplusplus
}
#endif
#endif
