#ifndef FOVEA_COMMON_TOP_H
#define FOVEA_COMMON_TOP_H

/* The largest of some numbers. Pure functions, any thread. */
#include <stdint.h>

#include "common/status.h"

/* The `keep` of n scores that are highest, 0..n, as ascending indices kept[keep]. Among equals the
 * lower index stays; a NaN is lower than any number. */
void fv_top(const float *score, int32_t n, int32_t keep, int32_t *kept);

/* All n in the order in which fv_top prefers them: order[0] stays the longest. FV_ENOMEM. */
fv_status fv_top_sort(const float *score, int32_t n, int32_t *order);

#endif
