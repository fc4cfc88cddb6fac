#ifndef FOVEA_COMMON_SUBSET_H
#define FOVEA_COMMON_SUBSET_H

/* Random subsets that are the same on every machine. Pure functions, any thread. */
#include <stdint.h>

/* Chooses `keep` of n indices, 0..n, ascending: a uniform subset that depends only on the seed and
 * the two numbers. */
void fv_subset(uint64_t seed, int32_t n, int32_t keep, int32_t *kept);

#endif
