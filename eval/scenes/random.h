#ifndef FOVEA_EVAL_SCENES_RANDOM_H
#define FOVEA_EVAL_SCENES_RANDOM_H

/* Random numbers that are the same on every machine; the items of a suite are drawn from them.
 *
 * The generator is xoshiro256** 1.0, seeded through splitmix64 (Blackman and Vigna). Everything
 * here is arithmetic on unsigned integers. Do not change anything here: that would change every
 * item. */
#include <stdbool.h>
#include <stdint.h>

typedef struct fv_random {
    uint64_t s[4];
} fv_random;

/* The finaliser of splitmix64: a bijection, so that different numbers stay different. */
static inline uint64_t fv_random_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* splitmix64: advances *state and returns the next number. */
static inline uint64_t fv_random_splitmix(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return fv_random_mix(*state);
}

static inline fv_random fv_random_seeded(uint64_t seed) {
    fv_random r;
    for (int i = 0; i < 4; i++) r.s[i] = fv_random_splitmix(&seed);
    return r;
}

static inline uint64_t fv_random_next(fv_random *r) {
    const uint64_t times5 = r->s[1] * 5;
    const uint64_t result = ((times5 << 7) | (times5 >> 57)) * 9;
    const uint64_t shifted = r->s[1] << 17;
    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= shifted;
    r->s[3] = (r->s[3] << 45) | (r->s[3] >> 19);
    return result;
}

/* A uniform number in [0, n) (Lemire's method); n >= 1. */
static inline int32_t fv_random_below(fv_random *r, int32_t n) {
    const uint32_t range = (uint32_t)n, too_low = (0u - range) % range;
    uint64_t product;
    do product = (fv_random_next(r) >> 32) * range;
    while ((uint32_t)product < too_low);
    return (int32_t)(product >> 32);
}

/* A number in [low, high]; low <= high. */
static inline int32_t fv_random_between(fv_random *r, int32_t low, int32_t high) {
    return low + fv_random_below(r, high - low + 1);
}

/* True with a probability of `percent` / 100. */
static inline bool fv_random_chance(fv_random *r, int32_t percent) {
    return fv_random_below(r, 100) < percent;
}

/* Number `i` of a noise computed by a hash, in any order: the sum of two uniform numbers, -1 to
 * 1. */
static inline float fv_random_noise(uint32_t seed, uint32_t i) {
    uint32_t u = i * 2654435761u + seed;
    u = (u ^ (u >> 16)) * 0x85ebca6bu;
    u = (u ^ (u >> 13)) * 0xc2b2ae35u;
    u ^= u >> 16;
    return ((float)((int32_t)(u & 0xffff) + (int32_t)(u >> 16)) - 65535.0f) * (1.0f / 65535.0f);
}

#endif
