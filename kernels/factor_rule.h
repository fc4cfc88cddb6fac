#ifndef FOVEA_KERNELS_FACTOR_RULE_H
#define FOVEA_KERNELS_FACTOR_RULE_H

/* When the iteration of kernels/factor.h is done, and with how many vectors: the same for all that
 * compute it. C, C++ and kernels. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef FV_ANYWHERE
#define FV_RULE static inline FV_ANYWHERE
#else
#define FV_RULE static inline
#endif

enum { FV_FACTOR_MAX_STEPS = 40 };

/* Directions beyond those that are kept: with many, one step is enough for the keys and values of a
 * network; each makes all products longer. */
FV_RULE int32_t fv_factor_oversample(int32_t rank) { return 16 + rank / 8; }

/* The iteration ends when what it can still gain is less than this share of the square of the
 * error, which is half of it of the error; that is estimated, and what is kept is better: 0.33 % at
 * most over the spectra of tests/unit/kernels/test_factor.c. */
#define FV_FACTOR_GAIN_SHARE 0.01

/* The last products, which gain much themselves, are tried when that much is left. */
#define FV_FACTOR_TRY_SHARE 0.025

/* An estimate is that much below the truth at worst. */
#define FV_FACTOR_DOUBT 1.4

/* Shares of ||M||^2 that are rounding: of what is left over; and of a vector's square. */
#define FV_FACTOR_LEFT_NOISE 1e-6
#define FV_FACTOR_RESIDUAL_NOISE 1e-6

/* Numbers above are too large to be packed. */
#define FV_FACTOR_MOST 0x1p100f

/* A row is dropped when less than this share of its square is new. Rows are products in f32, whose
 * rounding is 1e-14 of the square; after the first pass every row is new up to a hundredth. */
#define FV_FACTOR_NEW_SHARE_FIRST 1e-12
#define FV_FACTOR_NEW_SHARE_SECOND 1e-2

/* Operations of either way, halved: G is symmetric, and both have two steps as a rule. */
FV_RULE bool fv_factor_sketches(int32_t T, int32_t W, int32_t p) {
    double gram = 0.5 * T * T * W + 3.0 * p * T * T, sketch = 5.0 * p * T * W;
    return gram > sketch;
}

/* Number i of those of a seed: roughly normal, one draw of splitmix64, the sum of its four
 * quarters. */
FV_RULE float fv_factor_random(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    int32_t sum = (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) +
                  (int32_t)(z >> 32 & 0xffff) + (int32_t)(z >> 48) - 2 * 0xffff;
    return (float)sum * 0x1p-16f;
}

/* What a row of the Ritz vectors, whose square is r2, lacks: with its residual r = G u - w u, by
 * second-order perturbation, |r|^2 / (w - w'), where w' is the value that r meets outside of Q: at
 * most the smallest inside. */
FV_RULE double fv_factor_missing(double r2, double w, double smallest) {
    r2 -= w * w;
    if (r2 <= FV_FACTOR_RESIDUAL_NOISE * w * w) return 0;
    return w > smallest ? r2 / (w - smallest) : (double)INFINITY;
}

/* After a step: whether the last products are worth trying, when Q keeps `kept` of ||M||^2 and the
 * best subspace would keep about `gain` more. *last: they are the last in any case. */
FV_RULE bool fv_factor_tries(double norm2, double kept, double gain, int32_t steps, bool *last) {
    double left = norm2 - kept;
    *last = steps == FV_FACTOR_MAX_STEPS || left <= FV_FACTOR_LEFT_NOISE * norm2;
    return *last || gain <= FV_FACTOR_TRY_SHARE * left;
}

/* After those, which keep `now`: whether they are good enough. Reduces the estimated gain by what
 * they have gained. */
FV_RULE bool fv_factor_enough(double norm2, double kept, double gain, double now) {
    return FV_FACTOR_DOUBT * gain - (now - kept) <= FV_FACTOR_GAIN_SHARE * (norm2 - now);
}

#undef FV_RULE
#endif
