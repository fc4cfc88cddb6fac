/* Selection sampling (Knuth, TAOCP 2, 3.4.2 S): one pass over the indices, each chosen with
 * probability (still needed) / (still left), so they come in order without sorting. */
#include "common/subset.h"

#include <assert.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void fv_subset(uint64_t seed, int32_t n, int32_t keep, int32_t *kept) {
    int32_t taken = 0;
    assert(keep >= 0 && keep <= n);
    for (int32_t i = 0; i < n && taken < keep; i++) {
        double u = (double)(next_random(&seed) >> 11) * 0x1p-53;
        if (u * (n - i) < keep - taken) kept[taken++] = i;
    }
}
