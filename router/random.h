#ifndef FOVEA_ROUTER_RANDOM_H
#define FOVEA_ROUTER_RANDOM_H

/* Random numbers that may be predictable, for jitter; all others come from common/random.h. */
#include <stdint.h>

/* xorshift64 (Marsaglia 2003); *state is never 0. */
static inline uint64_t fv_random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
