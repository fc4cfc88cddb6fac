#ifndef FOVEA_COMMON_SUBSET_H
#define FOVEA_COMMON_SUBSET_H

/* Random subsets that are the same everywhere. Pure functions, any thread. */
#include <stdint.h>

/* `keep` of n indices, 0..n, ascending: a uniform subset that depends on the seed and the two
 * numbers only. */
void fv_subset(uint64_t seed, int32_t n, int32_t keep, int32_t *kept);

#endif
