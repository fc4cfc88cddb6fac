#ifndef FOVEA_COMMON_TOP_H
#define FOVEA_COMMON_TOP_H

/* The largest of n numbers. Pure functions, any thread. */
#include <stdint.h>

#include "common/status.h"

/* Chooses the `keep` highest of n scores, 0..n, as ascending indices kept[keep]. Of equal scores
 * the lower index is chosen; a NaN is lower than any number. */
void fv_top(const float *score, int32_t n, int32_t keep, int32_t *kept);

/* Sorts all n in the order in which fv_top prefers them, the highest first. FV_ENOMEM. */
fv_status fv_top_sort(const float *score, int32_t n, int32_t *order);

#endif
